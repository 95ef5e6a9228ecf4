//! The cost of the collective along each dimension.

use crate::explain;
use lockstep_web_protocol::MeshAccount;
use yew::prelude::*;

/// A row a dimension: choosing it colours its groups.
pub(super) fn dim_table(account: &MeshAccount, chosen: usize, on_choose: &Callback<usize>) -> Html {
    html! {
        <div class="scrolls">
        <table class="plain">
            <thead><tr>
                <th>{ "dimension" }</th><th>{ "groups" }</th><th>{ "inside a node" }</th><th>{ "between nodes" }</th><th>{ "time" }</th><th class="what">{ "what travels along it" }</th>
            </tr></thead>
            <tbody>
                { for account.dims.iter().enumerate().map(|(index, dim)| {
                    let chosen = index == chosen;
                    let choose = on_choose.reform(move |_: MouseEvent| index);
                    let size = dim.groups.first().map_or(0, Vec::len);
                    html! {
                        <tr class={classes!(chosen.then_some("chosen"))} data-test={format!("dim-{}", dim.name)}
                            data-inside={dim.inside.bytes.to_string()} data-across={dim.across.bytes.to_string()}
                            data-messages={(dim.inside.messages + dim.across.messages).to_string()} data-time-ps={dim.time_ps.to_string()}>
                            <td><button onclick={choose} aria-pressed={chosen.to_string()} data-test={format!("choose-dim-{}", dim.name)}>{ &dim.name }</button></td>
                            <td>{ format!("{} of {size}", dim.groups.len()) }</td>
                            <td>{ explain::bytes(dim.inside.bytes) }</td>
                            <td class={classes!((dim.across.bytes > 0).then_some("across"))}>{ explain::bytes(dim.across.bytes) }</td>
                            <td><b>{ explain::time(dim.time_ps) }</b></td>
                            <td class="muted what">{ explain::parallelism(&dim.name) }</td>
                        </tr>
                    }
                }) }
            </tbody>
        </table>
        </div>
    }
}

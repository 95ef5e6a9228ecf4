//! The calls that each backend supports on each device: the tables of PyTorch's documents.

use crate::ui::{Choice, SelectField};
use lockstep_torch::c10d::support::Documents;
use yew::prelude::*;

/// Properties of [`BackendTable`].
#[derive(Properties, PartialEq)]
pub(super) struct BackendTableProps {
    /// The call that is shown, whose row is marked.
    pub(super) call: &'static str,
}

/// The table of one version of the documents, which is chosen there.
#[component(BackendTable)]
pub(super) fn backend_table(props: &BackendTableProps) -> Html {
    let documents = use_state(|| Documents::V2_7);
    let choose = {
        let documents = documents.setter();
        Callback::from(move |version: String| {
            let named = Documents::ALL.into_iter().find(|known| known.version() == version);
            documents.set(named.unwrap_or(Documents::V2_7));
        })
    };
    let versions = Documents::ALL.into_iter().rev();
    let versions: Vec<Choice> = versions
        .map(|known| {
            let version = known.version();
            Choice::new(version, &format!("PyTorch {version}'s documents"))
        })
        .collect();
    html! {
        <details class="backend-table" data-test="backend-table" data-version={documents.version()}>
            <summary>{ "Which backend has which call" }</summary>
            <SelectField name="documents" label="As said by" value={documents.version()} choices={versions} on_choose={choose} />
            <div class="scrolls"><table class="plain">
                <thead>
                    <tr><td></td>{ for documents.columns().map(|column| html! { <th colspan="2">{ column.name() }</th> }) }</tr>
                    <tr><td></td>{ for documents.columns().map(|_| html! { <><th>{ "CPU" }</th><th>{ "GPU" }</th></> }) }</tr>
                </thead>
                <tbody>{ for documents.rows().map(|(call, cells)| html! {
                    <tr class={classes!((call == props.call).then_some("chosen"))} data-test={format!("backends-{call}")}>
                        <td>{ call }</td>
                        { for cells.into_iter().flatten().map(|support| html! { <td>{ support.to_string() }</td> }) }
                    </tr>
                }) }</tbody>
            </table></div>
            <p class="muted small-print">{ "✓ works, ✘ does not, ? depends on how the backend was built." }</p>
            { for documents.notes().map(|(column, call, note)| html! {
                <p class="muted small-print">{ format!("{call} on {}: {note}.", column.name()) }</p>
            }) }
        </details>
    }
}

use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "store_wait",
    title: "Waited in a store in vain",
    what: "A rank waits in the rendezvous store (TCPStore or FileStore) for a key that nobody sets: at `init_process_group`, `new_group`, `monitored_barrier`, or in a `store.get` of the job's own.",
    in_dumps: "Stores are not recorded: the dumps hold no call under way on that rank.",
    in_logs: "`wait timeout after …ms, keys: /default_pg/0//…`, `Timed out after … seconds waiting for clients. 1/2 clients joined`, or a socket timeout of `TCPStore`.",
    in_stacks: "The rank stands in `store.get` or `store.wait`, called by `init_process_group` or by the job.",
    example: None,
    fix: "Start as many processes as the world size says, with one address and port. For a key of the job's own, set it on some rank before others wait for it, on every way through the program.",
    prevent: "Let torchrun set the addresses. Give `init_process_group` a timeout of minutes, so that a node that does not come is told early.",
};

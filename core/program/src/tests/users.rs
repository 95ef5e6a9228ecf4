//! Additional arguments that users' programs hand to calls, held against PyTorch 2.7.1.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use crate::tests::tensors::{executed, printed, raised};
use lockstep_scenarios::program::Options;

#[test]
fn a_tuple_is_no_list() {
    let calls = [
        ("dist.all_gather(torch.zeros(4).chunk(2), torch.ones(2))", "tensor_list"),
        (
            "dist.gather(torch.ones(2), torch.zeros(4).split(2) if rank == 0 else None)",
            "gather_list",
        ),
        (
            "dist.scatter(torch.ones(2), torch.zeros(4).chunk(2) if rank == 0 else None)",
            "scatter_list",
        ),
        ("dist.reduce_scatter(torch.ones(2), torch.zeros(4).split(2))", "input_list"),
        (
            "dist.all_to_all(torch.zeros(4).split(2), list(torch.zeros(4).split(2)))",
            "output_tensor_list",
        ),
        (
            "dist.all_to_all(list(torch.zeros(4).split(2)), torch.zeros(4).split(2))",
            "input_tensor_list",
        ),
        ("dist.all_reduce_coalesced((torch.zeros(4), torch.zeros(2)))", "tensor"),
        ("dist.all_gather_coalesced([[torch.zeros(2)]], (torch.zeros(2),))", "input_tensor_list"),
    ];
    for (call, parameter) in calls {
        let expected = format!(
            "TypeError: Invalid function argument. Expected parameter `{parameter}` of type \
             List[torch.Tensor]\n             but got <class 'tuple'> instead."
        );
        assert_eq!(raised(&format!("    {call}")), expected, "{call}");
    }
    assert_eq!(
        raised("    dist.all_gather_coalesced(([torch.zeros(2)],), [torch.zeros(2)])"),
        "TypeError: Invalid function argument: output_tensor_lists should be a list"
    );
    assert_eq!(
        raised("    dist.batch_isend_irecv((dist.P2POp(dist.isend, torch.ones(1), 1 - rank),))"),
        "ValueError: Invalid ``p2p_op_list``. Each op is expected to to be of type \
         ``torch.distributed.P2POp``."
    );
    assert_eq!(
        raised("    dist.scatter_object_list((None,), [1, 2] if rank == 0 else None, src=0)"),
        "ValueError: Expected argument scatter_object_output_list to be a list of size at least 1."
    );
    let lists = "    out = torch.zeros(4)
    dist.all_gather(list(out.chunk(2)), torch.ones(2))
    dist.gather(torch.ones(2), list(out.split(2)) if rank == 0 else ())
    print('ok')";
    assert_eq!(printed(lists), ["ok"]);
}

#[test]
fn t_swaps_rows_and_columns() {
    let body = "    y = torch.zeros(4, 2)
    z = y.t()
    print(z.shape, z.is_contiguous(), z.size(0), torch.zeros(4, 4).t().is_contiguous())
    print(torch.zeros(3).t().shape, torch.zeros(1, 3).t().is_contiguous())
    print(z.t().shape, z.t().is_contiguous(), z.clone().is_contiguous())
    print(torch.zeros_like(z).is_contiguous(), z.to(torch.int64).is_contiguous())
    print(z.contiguous().shape, z.contiguous().is_contiguous(), z.reshape(-1).shape)
    dist.all_gather([torch.zeros(2, 4) for _ in range(ws)], z)
    dist.gather(z, [torch.zeros(2, 4) for _ in range(ws)] if rank == 0 else None)
    print('ok')";
    assert_eq!(
        printed(body),
        [
            "torch.Size([2, 4]) False 2 False",
            "torch.Size([3]) True",
            "torch.Size([4, 2]) True False",
            "False False",
            "torch.Size([2, 4]) True torch.Size([8])",
            "ok"
        ]
    );
    assert_eq!(
        raised("    torch.zeros(2, 3, 4).t()"),
        "RuntimeError: t() expects a tensor with <= 2 dimensions, but self is 3D"
    );
    let error = executed("    print(torch.zeros(2, 3).t()[0].shape)").unwrap_err();
    assert!(error.to_string().contains("contiguous()"), "{error}");
}

#[test]
fn names_of_the_environment() {
    let body = "    if \"RANK\" in os.environ and \"MASTER_ADDR\" in os.environ: print('torchrun')
    os.environ[\"A\"] = \"1\"; x = 2; os.environ[\"B\"] = str(x)
    print(x, os.environ[\"A\"] + os.environ[\"B\"], \"B\" in os.environ, \"C\" not in os.environ)
    print([name for name in os.environ if name.endswith(\"RANK\")])
    print(\"A\" in os.environ.keys())";
    assert_eq!(printed(body), ["torchrun", "2 12 True True", "['LOCAL_RANK', 'RANK']", "True"]);
}

/// A program that asks for a launcher's variables is one that this launcher starts.
#[test]
fn ranks_of_slurm_and_mpi_are_the_ranks() {
    let body = "    print(os.environ[\"SLURM_PROCID\"], os.environ[\"SLURM_NTASKS\"], os.environ[\"SLURM_LOCALID\"])
    print(os.environ.get(\"OMPI_COMM_WORLD_RANK\", \"-1\"), os.getenv(\"OMPI_COMM_WORLD_SIZE\", \"9\"))
    print(os.environ.get(\"SLURM_PROCID\"), \"SLURM_PROCID\" in os.environ)";
    let size = printed("    print(os.environ[\"WORLD_SIZE\"])").remove(0);
    assert_eq!(
        printed(body),
        [format!("0 {size} 0"), format!("0 {size}"), "None False".to_owned()]
    );
}

/// `from time import time` gives the module's name to its function; another library's class of a name of PyTorch's
/// is not PyTorch's.
#[test]
fn imports_give_names_to_what_they_name() {
    let text = |import: &str, line: &str| {
        format!(
            "{import}\nimport torch.nn as nn\nimport torch.distributed as dist\ndef main():\n    \
             dist.init_process_group(\"gloo\")\n    {line}\n    dist.barrier()\nrun(main, world_size=2)\n"
        )
    };
    let compiled = |text: &str| compile("train.py", text, &Options::default());
    let timed =
        compiled(&text("from time import time", "start = time(); print(\"took\", time() - start)"))
            .unwrap();
    assert_eq!(timed.raised.len(), 0);
    assert!(timed.printed[0].text.starts_with("took "), "{:?}", timed.printed);
    let class = "from apex.parallel import DistributedDataParallel";
    let other = compiled(&text(class, "DistributedDataParallel(nn.Linear(2, 2), message_size=10)"));
    assert!(other.is_err() || other.unwrap().raised.is_empty());
}

/// A default that is a text goes through `type`, and the launcher passes each rank its own `--local_rank`.
#[test]
fn arguments_are_what_argparse_makes_of_them() {
    let body = "    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument(\"--steps\", type=int, default=\"3\")
    parser.add_argument(\"--name\", default=\"a\")
    parser.add_argument(\"--local-rank\", type=int, default=-1)
    args = parser.parse_args()
    print(args.steps + 1, args.name, args.local_rank)";
    assert_eq!(printed(body), ["4 a 0"]);
}

/// The answers are those of CPython 3.11's argparse to the same command lines.
#[test]
fn a_script_gets_the_arguments_of_its_user() {
    let text = "import argparse\nimport torch.distributed as dist\n\n\
                parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)\n\
                parser.add_argument('data')\nparser.add_argument('--epochs', '-e', type=int, default=3)\n\
                parser.add_argument('--lr', type=float, required=True)\n\
                parser.add_argument('--amp', action='store_true')\n\
                parser.add_argument('--sizes', type=int, nargs='+', default=[1])\n\
                parser.add_argument('--compile', action=argparse.BooleanOptionalAction, default=True)\n\
                parser.add_argument('-v', '--verbose', action='count', default=0)\n\
                args = parser.parse_args()\ndist.init_process_group('gloo')\n\
                print(args.data, args.epochs, args.lr, args.amp, args.sizes, args.compile, args.verbose)\n\
                for epoch in range(args.epochs):\n    dist.barrier()\n";
    let of = |words: &str| {
        let arguments = words.split_whitespace().map(str::to_owned).collect();
        let options = Options { world_size: Some(2), arguments, ..Options::default() };
        compile("train.py", text, &options)
    };
    for (words, said) in [
        ("d --lr 0.5", "d 3 0.5 False [1] True 0"),
        ("d --lr=-1 -e 1 --amp", "d 1 -1.0 True [1] True 0"),
        ("--sizes 4 5 --lr 1 d", "d 3 1.0 False [4, 5] True 0"),
        ("d --ep 2 --lr 1 --no-compile -v -v", "d 2 1.0 False [1] False 2"),
    ] {
        let made = of(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(made.printed[0].text, said, "{words}");
    }
    for (words, why) in [
        ("d", "lr has no default and was not given"),
        ("--lr 1", "data has no default and was not given"),
        ("d --lr 1 --epoch-count 3", "unrecognized arguments: --epoch-count 3"),
        ("d --lr", "argument --lr: expected one argument"),
    ] {
        assert!(of(words).unwrap_err().message.contains(why), "{words}: {:?}", of(words));
    }
}

#[test]
fn booleans_fill_tensors() {
    let body = "    print(torch.full((2,), True).dtype, torch.tensor([True, False]).dtype)
    print(torch.tensor(True).dtype, torch.ones(2).fill_(True).dtype)
    print(torch.zeros(2, dtype=torch.bool).fill_(False).shape)";
    assert_eq!(
        printed(body),
        ["torch.bool torch.bool", "torch.bool torch.float32", "torch.Size([2])"]
    );
}

#[test]
fn a_mesh_of_arange() {
    let body =
        "    mesh = DeviceMesh('cpu', torch.arange(2).reshape(2, 1), mesh_dim_names=('a', 'b'))
    print(mesh.shape, mesh.get_local_rank('a'))";
    assert_eq!(printed(body), ["(2, 1) 0"]);
    let body = "    x = torch.arange(2)\n    dist.all_reduce(x)\n    DeviceMesh('cpu', x)";
    let error = executed(body).unwrap_err();
    assert!(error.to_string().contains("cannot be read from this tensor"), "{error}");
}

#[test]
fn what_python_does_not_pickle_is_not_sent() {
    let cannot = |class: &str| {
        format!("TypeError: cannot pickle 'torch._C._distributed_c10d.{class}' object")
    };
    let all = "    o = [None] * ws\n    dist.all_gather_object(o, ";
    let cases = [
        ("dist.barrier(async_op=True))", cannot("Work")),
        ("[1, (dist.new_group([0, 1]), 2)])", cannot("ProcessGroup")),
    ];
    for (object, expected) in cases {
        assert_eq!(raised(&format!("{all}{object}")), expected, "{object}");
    }
    // Objects that are sent to nobody are not pickled.
    let body = "    g = dist.new_group([0, 1])
    b = [g] if rank == 1 else [1]
    dist.broadcast_object_list(b, 0)
    print(b)";
    assert_eq!(printed(body), ["[1]"]);
    let body = "    g = dist.new_group([0, 1])
    b = [g] if rank == 0 else [None]
    dist.broadcast_object_list(b, 0)";
    assert_eq!(raised(body), cannot("ProcessGroup"));
}

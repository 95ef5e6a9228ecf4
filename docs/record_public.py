"""Records public training scripts as they are: three optimizer steps of each, with stand-ins for data and weights.

    python docs/record_public.py target/release/lockstep CHECKOUTS
    python docs/record_public.py target/release/lockstep CHECKOUTS karpathy/nanoGPT torchtitan

CHECKOUTS holds a clone of each repository as `owner__name`; those that are not there are passed over. Words behind it
name scripts, by a part of their name. Run it with a Python that has torch and what the scripts import.

A script counts as recorded if every rank has made calls, all ranks have taken the same number of optimizer steps and
none has raised. Nothing of a script is changed: sizes are chosen by its own arguments, and what it would download is
put beside it, small and random. `record-scripts.md` has the results.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import time

# A recording that makes no call for so long is given up; one that takes longer than this is ended.
PATIENCE_S, LONGEST_S = 150, 300


# ---------------------------------------------------------------------------------------------------------------
# Stand-ins


def once(make):
    """Makes a stand-in where it is not there yet."""

    @functools.wraps(make)
    def made(folder, *args):
        mark = os.path.join(folder, ".lockstep_" + make.__name__ + "_".join(map(str, args)).replace("/", "_"))
        if not os.path.exists(mark):
            make(folder, *args)
            open(mark, "w").close()

    return made


@once
def images(folder, size=64, classes=4, per_class=24, sets=("train", "val")):
    """A folder of images a class: `images/train/0/0.jpg`."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(0)
    for name in sets:
        for label in range(classes):
            place = os.path.join(folder, "images", name, str(label))
            os.makedirs(place, exist_ok=True)
            for index in range(per_class):
                pixels = random.integers(0, 256, (size, size, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(os.path.join(place, f"{index}.jpg"))


@once
def flat_images(folder, size=64):
    """A folder of images without classes."""
    images(folder, size, 1, 64, ("flat",))


def words():
    import random

    vocabulary = [f"w{index}" for index in range(480)]
    draw = random.Random(0)
    return lambda count: " ".join(draw.choices(vocabulary, k=count))


@once
def tokenizer(folder, name, length=512):
    """A tokenizer of 500 words, with the special tokens of BERT, GPT-2 and Llama."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {word: index for index, word in enumerate(special + [f"w{index}" for index in range(480)])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="<s>", eos_token="</s>", model_max_length=length,
    )
    fast.chat_template = "{% for m in messages %}{{ m['role'] + ' ' + m['content'] }} {% endfor %}"
    fast.save_pretrained(os.path.join(folder, name))


@once
def language_model(folder, name, kind):
    """A small model of a kind (bert, gpt2, llama, …) with weights and tokenizer, in a folder of the hub's name."""
    import transformers

    sizes = dict(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                 max_position_embeddings=512, pad_token_id=0)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=512, n_embd=64, n_layer=2, n_head=4, n_positions=512)
    elif kind == "llama_unpadded":  # as Llama's own: ZeRO 3 takes the row away that padding would set to zero
        config = transformers.LlamaConfig(**{**sizes, "pad_token_id": None})
    else:
        config = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig,
                  "llama": transformers.LlamaConfig}[kind](**sizes)
    model = (transformers.AutoModelForMaskedLM if kind in ("bert", "roberta") else transformers.AutoModelForCausalLM)
    model.from_config(config).save_pretrained(os.path.join(folder, name))
    tokenizer(folder, name)


def text_data(folder, name, rows, sets=("train", "validation", "test"), configs=("default",)):
    """A data set of the hub's name: a file of rows a set, for each of its configurations."""
    place = os.path.join(folder, name)
    os.makedirs(place, exist_ok=True)
    for one in sets:
        with open(os.path.join(place, f"{one}.jsonl"), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    with open(os.path.join(place, "README.md"), "w") as file:
        file.write("---\nconfigs:\n")
        for config in configs:
            file.write(f"- config_name: {config}\n  data_files:\n")
            file.writelines(f"  - split: {one}\n    path: {one}.jsonl\n" for one in sets)
        file.write("---\n")


@once
def glue(folder):
    """BERT and GLUE's pairs of sentences."""
    language_model(folder, "bert-base-cased", "bert")
    text = words()
    rows = [{"sentence1": text(12), "sentence2": text(12), "label": index % 2, "idx": index} for index in range(256)]
    text_data(folder, "nyu-mll/glue", rows, configs=("mrpc",))


@once
def glue_metric(folder):
    """The metric that `evaluate` would download."""
    os.makedirs(os.path.join(folder, "glue"), exist_ok=True)
    with open(os.path.join(folder, "glue", "glue.py"), "w") as file:
        file.write("import datasets\nimport evaluate\n\n\nclass Glue(evaluate.Metric):\n    def _info(self):\n"
                   "        number = datasets.Value('int64')\n        return evaluate.MetricInfo(description='', citation='', "
                   "features=datasets.Features({'predictions': number, 'references': number}))\n\n"
                   "    def _compute(self, predictions, references):\n"
                   "        return {'accuracy': sum(map(int.__eq__, map(int, predictions), map(int, references))) / len(references), 'f1': 0.0}\n")


@once
def stories(folder, name, model, kind, *configs):
    """A language model and a data set of texts."""
    language_model(folder, model, kind)
    text = words()
    text_data(folder, name, [{"text": text(96)} for _ in range(512)], configs=configs or ("default",))


@once
def conversations(folder, name, model, kind):
    language_model(folder, model, kind)
    text = words()
    rows = [{"messages": [{"role": "user", "content": text(8)}, {"role": "assistant", "content": text(24)}]}
            for _ in range(128)]
    text_data(folder, name, rows)


@once
def preferences(folder, name, model, kind):
    language_model(folder, model, kind)
    text = words()
    rows = [{"prompt": text(6), "chosen": text(8), "rejected": text(8)} for _ in range(128)]
    text_data(folder, name, rows)


@once
def tokens(folder, data="data/openwebtext"):
    """nanoGPT's files of tokens."""
    import numpy

    os.makedirs(os.path.join(folder, data), exist_ok=True)
    for name in ("train", "val"):
        numpy.random.default_rng(0).integers(0, 500, 20_000, dtype=numpy.uint16).tofile(
            os.path.join(folder, data, f"{name}.bin"))


@once
def fineweb(folder):
    """build-nanogpt's shards, and tiktoken's vocabulary as a sibling module."""
    import numpy

    os.makedirs(os.path.join(folder, "edu_fineweb10B"), exist_ok=True)
    for name in ("train", "val"):
        numpy.save(os.path.join(folder, "edu_fineweb10B", f"edufineweb_{name}_000000.npy"),
                   numpy.random.default_rng(0).integers(0, 500, 600_000, dtype=numpy.uint16))
    with open(os.path.join(folder, "tiktoken.py"), "w") as file:
        file.write("class Encoding:\n    eot_token = 50256\n    encode = staticmethod(lambda text: [*text.encode()])\n"
                   "    decode = staticmethod(lambda tokens: bytes(t % 256 for t in tokens).decode('latin-1'))\n\n\n"
                   "def get_encoding(name):\n    return Encoding()\n")
    os.makedirs(os.path.join(folder, "hellaswag"), exist_ok=True)
    row = {"ctx": "a b", "label": 0, "endings": ["c", "d", "e", "f"]}
    with open(os.path.join(folder, "hellaswag", "hellaswag_val.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for _ in range(4))


@once
def text_file(folder, name, count=20_000):
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    with open(os.path.join(folder, name), "w") as file:
        file.write(words()(count))


def several(*stand_ins):
    def make(folder):
        for one in stand_ins:
            one(folder)

    return make


def of(stand_in, *args):
    return lambda folder: stand_in(folder, *args)


# ---------------------------------------------------------------------------------------------------------------
# The scripts: name, folder in the repository, options of `lockstep record`, command, stand-ins

TORCHRUN = "torchrun --nproc-per-node 2 "
ACCELERATE = "accelerate launch --num_processes 2 "

SCRIPTS = []


def script(name, folder, options, command, stand_ins=None, environment=None):
    SCRIPTS.append((name, folder, options, command, stand_ins, environment or {}))


def scripts():
    # Language models
    script("karpathy/nanoGPT: train.py", "", "", TORCHRUN + "train.py --batch_size=2 --block_size=64 --n_layer=2 "
           "--n_head=4 --n_embd=64 --eval_iters=1 --gradient_accumulation_steps=2 --compile=False", tokens)
    script("karpathy/build-nanogpt: train_gpt2.py", "", "--no-memory", TORCHRUN + "train_gpt2.py", fineweb)
    script("pytorch/examples: minGPT-ddp/mingpt/main.py", "distributed/minGPT-ddp/mingpt", "", TORCHRUN + "main.py data_config.path=data/input.txt",
           of(text_file, "data/input.txt"))

    # PyTorch's own
    for name, command, ranks in (
        ("ddp/example.py", "example.py", 4), ("FSDP2/example.py", "example.py", 2),
        ("ddp-tutorial-series/multigpu.py", None, 2), ("ddp-tutorial-series/multigpu_torchrun.py", None, 2),
        ("ddp-tutorial-series/multinode.py", None, 4), ("tensor_parallelism/fsdp_tp_example.py", "", 4),
        ("tensor_parallelism/sequence_parallel_example.py", "", 4), ("tensor_parallelism/tensor_parallel_example.py", "", 4),
    ):
        folder, file = name.split("/")
        arguments = " 2 10" if folder == "ddp-tutorial-series" else ""
        launcher = f"torchrun --nproc-per-node {ranks} " if file != "multigpu.py" else ""
        script(f"pytorch/examples: {name}", f"distributed/{folder}", "" if launcher else "-n 2", f"{launcher}{file}{arguments}")
    script("pytorch/examples: imagenet/main.py", "imagenet", "-n 2 --no-math", "main.py images -a resnet18 -b 8 -j 0 "
           "--epochs 1 --dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0 --multiprocessing-distributed", images)
    for model, config, ranks in (("llama3", "llama3_debugmodel", 2), ("deepseek_v3", "deepseek_v3_debugmodel", 2),
                                 ("qwen3", "qwen3_debugmodel", 2)):
        script(f"pytorch/torchtitan: {config}", "", "--no-memory", f"torchrun --nproc-per-node {ranks} -m torchtitan.train "
               f"--module {model} --config {config}", c4)
    for more, ranks in (("--parallelism.tensor_parallel_degree 2", 4), ("--parallelism.pipeline_parallel_degree 2 --training.disable_cuda_graphs", 4)):
        script(f"pytorch/torchtitan: llama3_debugmodel {more}", "", "--no-memory", f"torchrun --nproc-per-node {ranks} "
               f"-m torchtitan.train --module llama3 --config llama3_debugmodel {more}", c4)
    script("pytorch/PiPPy: examples/basic/example_manual_stage.py", "examples/basic", "",
           "torchrun --nproc-per-node 3 example_manual_stage.py", None, {"PYTHONPATH": "../.."})
    script("pytorch/PiPPy: examples/basic/example.py", "examples/basic", "", "torchrun --nproc-per-node 4 example.py", None, {"PYTHONPATH": "../.."})
    script("pytorch/PiPPy: examples/basic/example_train.py", "examples/basic", "",
           "torchrun --nproc-per-node 4 example_train.py", None, {"PYTHONPATH": "../.."})

    # Accelerate
    for name in ("nlp_example.py", "complete_nlp_example.py", *(f"by_feature/{one}.py" for one in (
        "automatic_gradient_accumulation", "checkpointing", "cross_validation", "ddp_comm_hook", "early_stopping",
        "gradient_accumulation", "local_sgd", "memory", "multi_process_metrics", "profiler", "schedule_free", "tracking"))):
        script(f"huggingface/accelerate: {name}", "examples", "", ACCELERATE + name, several(glue, glue_metric))
    script("huggingface/accelerate: by_feature/gradient_accumulation_for_autoregressive_models.py", "examples", "",
           ACCELERATE + "by_feature/gradient_accumulation_for_autoregressive_models.py",
           of(stories, "Salesforce/wikitext", "HuggingFaceTB/SmolLM-360M", "llama", "wikitext-2-v1"))
    for name in ("cv_example.py", "complete_cv_example.py"):
        script(f"huggingface/accelerate: {name}", "examples", "--random-data --no-memory",
               ACCELERATE + f"{name} --data_dir pets", pets)
    script("huggingface/accelerate: torch_native_parallelism/nd_parallel.py", "examples/torch_native_parallelism", "",
           "torchrun --nproc-per-node 4 nd_parallel.py --dp-replicate-size 2 --dp-shard-size 2 --sequence-length 64 --model-name tiny",
           of(stories, "roneneldan/TinyStories", "tiny", "llama"))

    # Lightning
    fabric = "fabric run --devices 2 --strategy ddp --accelerator cuda train_fabric.py"
    for name in ("image_classifier", "kfold_cv"):
        script(f"Lightning-AI/pytorch-lightning: fabric/{name}/train_fabric.py", f"examples/fabric/{name}", "--random-data", fabric)
    script("Lightning-AI/pytorch-lightning: fabric/tensor_parallel/train.py", "examples/fabric/tensor_parallel",
           "-n 4 --no-memory", "train.py")
    script("Lightning-AI/pytorch-lightning: pytorch/tensor_parallel/train.py", "examples/pytorch/tensor_parallel",
           "-n 4 --no-memory", "train.py")
    script("Lightning-AI/pytorch-lightning: pytorch/domain_templates/imagenet.py", "examples/pytorch/domain_templates",
           "-n 2 --no-math", "imagenet.py fit --model.data_path images --model.batch_size 8 --model.workers 0 "
           "--trainer.accelerator cuda --trainer.devices 2 --model.arch resnet18", images)
    script("Lightning-AI/pytorch-lightning: pytorch/basics/autoencoder.py", "examples/pytorch/basics",
           "-n 2 --random-data", "autoencoder.py --trainer.devices 2 --trainer.accelerator cuda")
    script("Lightning-AI/pytorch-lightning: pytorch/basics/backbone_image_classifier.py", "examples/pytorch/basics",
           "-n 2 --random-data", "backbone_image_classifier.py --trainer.devices 2 --trainer.accelerator cuda")
    script("Lightning-AI/pytorch-lightning: fabric/build_your_own_trainer/run.py", "examples/fabric/build_your_own_trainer",
           "-n 2 --random-data", "run.py")

    # DeepSpeed
    deep = "deepspeed --num_gpus 2 "
    script("deepspeedai/DeepSpeedExamples: cifar/cifar10_deepspeed.py", "training/cifar", "--random-data",
           deep + "cifar10_deepspeed.py --deepspeed --epochs 1")
    script("deepspeedai/DeepSpeedExamples: cifar/cifar10_deepspeed.py --stage 2", "training/cifar", "--random-data",
           deep + "cifar10_deepspeed.py --deepspeed --epochs 1 --stage 2 --dtype bf16")
    script("deepspeedai/DeepSpeedExamples: pipeline_parallelism/train.py", "training/pipeline_parallelism",
           "--random-data --no-math", deep + "train.py --deepspeed_config=ds_config.json -p 2 --steps=3")
    script("deepspeedai/DeepSpeedExamples: bf16_master_weight/train.py", "training/bf16_master_weight", "",
           deep + "train.py --deepspeed_config configs/baseline.json --hidden_dim 64 --num_layers 2 --num_heads 4 "
           "--vocab_size 512 --seq_length 64")
    script("deepspeedai/DeepSpeedExamples: tensor_parallel/basic_example/autotp_example.py",
           "training/tensor_parallel/basic_example", "", "deepspeed --num_gpus 4 autotp_example.py --model_name tiny --tp_size 2",
           of(language_model, "tiny", "llama"))

    # Megatron, Picotron
    script("NVIDIA/Megatron-LM: examples/run_simple_mcore_train_loop.py", "", "",
           TORCHRUN + "examples/run_simple_mcore_train_loop.py")
    megatron = ("pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
                "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --train-iters 3 --mock-data "
                "--tokenizer-type NullTokenizer --vocab-size 500 --lr 1e-4 --transformer-impl local --bf16 "
                "--no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-bias-gelu-fusion "
                "--no-bias-dropout-fusion --no-rope-fusion --eval-iters 0 --no-persist-layer-norm ")
    script("NVIDIA/Megatron-LM: pretrain_gpt.py (tp 2, pp 2)", "", "", "torchrun --nproc-per-node 4 " + megatron +
           "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2")
    script("huggingface/picotron: train.py (dp 2, tp 2, pp 2)", "", "",
           "torchrun --nproc-per-node 8 train.py --config lockstep/config.json", picotron, {"HF_HUB_OFFLINE": "1"})

    # Hugging Face's trainers
    script("huggingface/trl: scripts/sft.py", "", "", TORCHRUN + "trl/scripts/sft.py --model_name_or_path tiny "
           "--dataset_name talk --per_device_train_batch_size 2 --max_length 64 --max_steps 3 --output_dir out "
           "--report_to none --save_strategy no --bf16 False",
           of(conversations, "talk", "tiny", "llama"), {"HF_HUB_OFFLINE": "1"})
    script("huggingface/trl: scripts/dpo.py", "", "", TORCHRUN + "trl/scripts/dpo.py --model_name_or_path tiny "
           "--dataset_name pairs --per_device_train_batch_size 2 --max_length 64 --max_steps 3 --output_dir out "
           "--report_to none --save_strategy no --bf16 False",
           of(preferences, "pairs", "tiny", "llama"))
    script("huggingface/trl: scripts/reward.py", "", "", TORCHRUN + "trl/scripts/reward.py --model_name_or_path tiny "
           "--dataset_name pairs --per_device_train_batch_size 2 --max_length 64 --max_steps 3 --output_dir out "
           "--report_to none --save_strategy no --bf16 False",
           of(preferences, "pairs", "tiny", "llama"))

    # LambdaLabs' guide
    guide = "train_llm.py -d stories -m tiny -s 64 --num-epochs 1"
    for chapter, ranks in (("02-distributed-data-parallel", 2), ("04-fully-sharded-data-parallel", 2), ("06-tensor-parallel", 2),
                           ("07-2d-parallel", 4), ("alternative-frameworks/deepspeed", 2)):
        more = " -b 1" + " --tensor-parallel 2" * (chapter == "07-2d-parallel")
        launch = f"torchrun --nproc-per-node {ranks} " if "deepspeed" not in chapter else deep
        if "deepspeed" in chapter:
            more = " -e trial --deepspeed_config ds_config.json"
        script(f"LambdaLabsML/distributed-training-guide: {chapter}", chapter, "", launch + guide + more,
               of(stories, "stories", "tiny", "llama_unpadded" if "deepspeed" in chapter else "llama"))

    # Vision
    script("facebookresearch/dino: main_dino.py", "", "--no-math", TORCHRUN + "main_dino.py --arch vit_tiny --data_path "
           "images/train --batch_size_per_gpu 2 --num_workers 0 --out_dim 256 --local_crops_number 1", images)
    script("facebookresearch/simsiam: main_simsiam.py", "", "-n 2 --no-math", "main_simsiam.py images -a resnet18 -b 8 -j 0 "
           "--multiprocessing-distributed --dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0", images)
    script("facebookresearch/moco: main_moco.py", "", "-n 2 --no-math", "main_moco.py images -a resnet18 -b 8 -j 0 "
           "--moco-k 64 --multiprocessing-distributed --dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0", images)
    script("facebookresearch/moco: main_lincls.py", "", "-n 2 --no-math", "main_lincls.py images -a resnet18 -b 8 -j 0 "
           "--multiprocessing-distributed --dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0", images)
    script("facebookresearch/moco-v3: main_moco.py", "", "-n 2 --no-math", "main_moco.py images -a resnet18 -b 8 -j 0 "
           "--multiprocessing-distributed --dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0", images)
    script("facebookresearch/barlowtwins: main.py", "", "-n 2 --no-math", "main.py images --batch-size 8 --workers 0 "
           "--projector 64-64 --epochs 1", images)
    script("facebookresearch/vicreg: main_vicreg.py", "", "--no-math", TORCHRUN + "main_vicreg.py --data-dir images "
           "--batch-size 8 --num-workers 0 --mlp 64-64 --epochs 1", images)
    script("facebookresearch/DiT: train.py", "", "--random-data --no-memory", TORCHRUN + "train.py --data-path images/train "
           "--model DiT-S/8 --global-batch-size 4 --num-workers 0 --epochs 1", several(images, autoencoder))
    script("facebookresearch/ijepa: main.py", "", "-n 2 --no-math", "main.py --devices cuda:0 cuda:1")
    script("openai/improved-diffusion: scripts/image_train.py", "", "", "mpirun -np 2 python scripts/image_train.py "
           "--data_dir images/flat/0 --image_size 32 --num_channels 32 --num_res_blocks 1 --batch_size 2 "
           "--diffusion_steps 50 --attention_resolutions 8", flat_images, {"PYTHONPATH": "."})
    script("openai/guided-diffusion: scripts/image_train.py", "", "", "mpirun -np 2 python scripts/image_train.py "
           "--data_dir images/flat/0 --image_size 64 --num_channels 32 --num_res_blocks 1 --batch_size 2 "
           "--diffusion_steps 50 --attention_resolutions 8", flat_images, {"PYTHONPATH": "."})
    script("NVlabs/edm: train.py", "", "--no-math", TORCHRUN + "train.py --outdir out --data images/flat/0 --batch 4 "
           "--cbase 16 --cres 1,1 --duration 1 --workers 1", flat_images)
    script("huggingface/pytorch-image-models: train.py", "", "--no-math", TORCHRUN + "train.py images --model resnet18 "
           "-b 4 -j 0 --img-size 64 --epochs 1 --num-classes 4", images)
    for name in ("distributed.py", "distributed_gradient_accumulation.py", "distributed_mp.py"):
        launcher = "" if name.endswith("_mp.py") else "python -m torch.distributed.launch --nproc_per_node=2 "
        script(f"rentainhe/pytorch-distributed-training: {name}", "", "--random-data" + " -n 2" * (not launcher), launcher + name)
    for name in ("distributed.py", "multiprocessing_distributed.py"):
        launcher = "" if name.startswith("multi") else "python -m torch.distributed.launch --nproc_per_node=2 "
        script(f"tczhangzhi/pytorch-distributed: {name}", "", "--no-math" + " -n 2" * (not launcher),
               launcher + f"{name} --data images -b 8 -j 0 --epochs 1", images)


@once
def c4(folder):
    """torchtitan's sample of C4, which its repository holds as a large file."""
    text = words()
    with open(os.path.join(folder, "tests/assets/c4_test/data.json"), "w") as file:
        file.writelines(json.dumps({"text": text(800)}) + "\n" for _ in range(256))


@once
def pets(folder):
    """Images that are named by their class."""
    import numpy
    from PIL import Image

    os.makedirs(os.path.join(folder, "pets"), exist_ok=True)
    random = numpy.random.default_rng(0)
    for index in range(320):
        pixels = random.integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(os.path.join(folder, "pets", f"kind{index % 4}_{index}.jpg"))


@once
def autoencoder(folder):
    """diffusers' variational autoencoder with small layers, under the name that DiT asks for."""
    from diffusers import AutoencoderKL

    AutoencoderKL(
        block_out_channels=(8, 8, 8, 8), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, norm_num_groups=4, latent_channels=4,
    ).save_pretrained(os.path.join(folder, "stabilityai/sd-vae-ft-ema"))


@once
def picotron(folder):
    """Its own requirements name Transformers 4.47, whose tokenizers have functions that it calls."""
    stories(folder, "stories", "tiny", "llama")
    with open(os.path.join(folder, "template", "base_config.json")) as file:
        config = json.load(file)
    config["distributed"].update(tp_size=2, pp_size=2, dp_size=2)
    config["model"].update(name="tiny", num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    config["training"].update(total_train_steps=3, seq_length=32, micro_batch_size=2, gradient_accumulation_steps=2,
                              num_samples=200)
    config["dataset"].update(name="stories", subset_name=None)
    config["environment"].update(HF_TOKEN="none")
    for place in ("lockstep", "hf_model/tiny", "hf_model_safetensors"):
        os.makedirs(os.path.join(folder, place), exist_ok=True)
    # Where it puts what it has downloaded.
    shutil.copy(os.path.join(folder, "tiny", "config.json"), os.path.join(folder, "hf_model", "tiny"))
    shutil.copy(os.path.join(folder, "tiny", "model.safetensors"), os.path.join(folder, "hf_model_safetensors"))
    with open(os.path.join(folder, "lockstep", "config.json"), "w") as file:
        json.dump(config, file)


# ---------------------------------------------------------------------------------------------------------------


def record(lockstep, folder, options, command, environment):
    """The output of `lockstep record --json`, or None; and its last words on stderr."""
    plan = os.path.join(folder, "lockstep_public.plan.json")
    if os.path.exists(plan):
        os.remove(plan)
    words_of_it = [lockstep, "record", "--steps", "3", "--patience", str(PATIENCE_S), "--python",
                   os.environ.get("LOCKSTEP_PYTHON", sys.executable), "--json", "-o", plan, *options.split(), "--", *command.split()]
    clean = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled", **environment}
    process = subprocess.Popen(words_of_it, cwd=folder, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
    try:
        return json.loads(out), err
    except ValueError:
        return None, err


def verdict(printed, err):
    """True if it is recorded, and the cells of the table or the reason."""
    if printed is None:
        return False, " ".join(err.split())[-300:]
    ranks = printed["ranks"]
    raised = [rank["raised"] for rank in ranks if rank["raised"]]
    calls, steps = [rank["calls"] for rank in ranks], {rank["steps"] for rank in ranks}
    span = str(calls[0]) if min(calls) == max(calls) else f"{min(calls)} to {max(calls)}"
    shown = f"{len(ranks)} ranks, {span} calls, {'/'.join(map(str, sorted(steps)))} steps"
    if raised:
        return False, f"{shown}: {raised[0][:300]}"
    cut = printed.get("cut")
    return min(calls) > 0 and len(steps) == 1 and not cut, shown + (f": {cut}" if cut else "")


def main():
    lockstep, checkouts, names = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    scripts()
    good = tried = 0
    for name, inside, options, command, stand_ins, environment in SCRIPTS:
        folder = os.path.join(checkouts, name.split(":")[0].replace("/", "__"), inside)
        if not os.path.isdir(folder) or names and not any(one in name for one in names):
            continue
        began, tried = time.monotonic(), tried + 1
        try:
            if stand_ins:
                stand_ins(folder)
            is_good, said = verdict(*record(lockstep, folder, options, command, environment))
        except Exception as error:
            is_good, said = False, f"stand-ins: {type(error).__name__}: {error}"
        good += is_good
        print(f"{'recorded' if is_good else 'NOT':9}{name} [{options}] {said} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{good} of {tried} recorded")


if __name__ == "__main__":
    main()

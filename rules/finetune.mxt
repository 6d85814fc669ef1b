# finetune: one recipe becomes one target per stage, and one that builds them all and signs the receipt.
#
#   load("@mxt//rules:finetune.mxt", "finetune")
#   finetune(name = "tiny_sft_lora", recipe = "tiny_sft_lora.yaml")
#
# The stages are the sections present in the recipe: without `quantize` there is no .quantize.
# What is only text (fetching, shards, dedupe, pack) runs on the CPU whatever the recipe's device, so that a
# laptop can prepare what a GPU trains on. A plan pinned beside the recipe (NAME.plan.json, see `mxt plan pin`) takes the probe's place.

CPU = "//:cpu"
CPU_TOOLCHAIN = "//:cpu_py311"

# by the device that a platform's name begins with
TOOLCHAINS = {
    "cpu": CPU_TOOLCHAIN,
    "mi300x": "//:rocm_primus",
    "mi325x": "//:rocm_primus",
    "mi350x": "//:rocm_primus",
    "mi355x": "//:rocm_primus",
    "a100": "//:cuda",
    "h100": "//:cuda",
    "h200": "//:cuda",
}

def finetune(name, recipe, toolchain = None, tags = [], overrides = {}):
    """Declares NAME and NAME.<stage>.

    Args:
      name: the target that builds all pure stages and their receipt.
      recipe: a YAML file of the package.
      toolchain: what the stages on the device run in; by default the one that belongs to hardware.platform.
      tags: for all targets.
      overrides: fields that differ from the recipe, as {"train.lr": 1e-4} (see docs/sweep.md).
    """
    cfg = config(recipe, "recipe", overrides)
    model, data, train_cfg, eval_cfg = cfg["model"], cfg["data"], cfg["train"], cfg["eval"]
    platform, gpus = cfg["hardware"]["platform"], cfg["hardware"]["gpus"]
    device = platform.split("_")[0]
    if toolchain == None:
        if device not in TOOLCHAINS:
            fail("%s: nothing is known to run on '%s': give finetune() a toolchain" % (recipe, platform))
        toolchain = TOOLCHAINS[device]
    common = {
        "config": cfg,
        "platform": "//:%s_%dx" % (platform, gpus) if gpus > 1 else "//:" + platform,
        "toolchain": toolchain,
        "tags": tags,
    }
    text = common if device == "cpu" else common | {"platform": CPU, "toolchain": CPU_TOOLCHAIN}
    made = []

    # What quantizing compiles depends on the toolchain alone: early, beside all the rest.
    if cfg["quantize"] != None:
        quark_extension(
            name = name + ".quark_extension",
            platform = common["platform"],
            toolchain = toolchain,
            gpus = gpus,
            env = cfg["hardware"]["env"],
            tags = tags,
        )
        made.append(".quark_extension")

    # The model. Tokenizer, configuration and shapes are all that pack and probe read, so they take
    # the untrained one: they run beside pre-training and outlive its changes.
    if model["init"] != None:
        corpus = glob(model["init"]["corpus"])
        init_model(name = name + ".init_model", corpus = corpus, **common)
        made.append(".init_model")
        shape = ":" + name + ".init_model"
        base = shape
        if model["pretrain"] != None:
            pretrain(name = name + ".pretrain", model = shape, corpus = corpus, **common)
            made.append(".pretrain")
            base = ":" + name + ".pretrain"
    elif model["hub"] != None:
        fetch_model(name = name + ".fetch_model", **text)
        made.append(".fetch_model")
        shape = ":" + name + ".fetch_model"
        base = shape
    else:
        shape = model["path"]
        base = shape

    # The data.
    keep = None
    if data != None:
        whole = data["dedupe"] != None or data["limit"] != None  # something that asks about all rows
        if data["hub"] != None:
            fetch_data(name = name + ".fetch_data", **text)
            made.append(".fetch_data")
            source = {"fetched": ":" + name + ".fetch_data"}
        else:
            source = {"files": glob(data["files"])}
        shards(name = name + ".shards", signatures = whole, **(text | source))
        made.append(".shards")
        if whole:
            dedupe(name = name + ".dedupe", shards = ":" + name + ".shards", **text)
            made.append(".dedupe")
            keep = ":" + name + ".dedupe"
        pack(
            name = name + ".pack",
            model = shape,
            shards = ":" + name + ".shards",
            keep = keep,
            template = data["chat_template"],
            **(text | source)
        )
        made.append(".pack")

    # Training, by the plan that the probe makes or that somebody pinned.
    tuned = {"model": base, "adapter": None}
    plan = None
    if train_cfg != None:
        plan = name + ".plan.json"
        if not glob([plan], allow_empty = True):
            probe(name = name + ".probe", model = shape, **common)
            made.append(".probe")
            plan = ":" + name + ".probe"
        train(name = name + ".train", model = base, data = ":" + name + ".pack", plan = plan, **common)
        made.append(".train")
        if train_cfg["lora"] != None:
            tuned["adapter"] = ":" + name + ".train"
        else:
            tuned["model"] = ":" + name + ".train"

    # Judging base and tuned model apart, so that a new training leaves the base's results alone.
    if eval_cfg != None:
        files = {
            "tasks": [t for t in eval_cfg["tasks"] if t.endswith(".yaml") or t.endswith(".yml")],
            "files": glob(eval_cfg["files"]) if eval_cfg["files"] else [],
        }
        evaluate(name = name + ".eval_base", model = base, **(common | files))
        made.append(".eval_base")
        if train_cfg != None:
            evaluate(name = name + ".eval", **(common | files | tuned))
            made.append(".eval")
        if eval_cfg["gate"] != None:
            gate(
                name = name + ".gate",
                base = ":" + name + ".eval_base",
                tuned = ":" + name + ".eval",
                shards = ":" + name + ".shards",
                keep = keep,
                **text
            )
            made.append(".gate")

    if cfg["quantize"] != None:
        rows = ":" + name + ".pack" if data != None else None
        quantize(name = name + ".quantize", data = rows, extension = ":" + name + ".quark_extension", **(common | tuned))
        made.append(".quantize")

    # Run and not built: nothing below is part of NAME, and no pattern names it.
    manual = {"tags": tags + ["manual"]}
    small = {"quantized": ":" + name + ".quantize"} if cfg["quantize"] != None else {}
    if cfg["serve"] != None:
        serve(name = name + ".serve", plan = plan, **(common | manual | tuned | small))
    if cfg["publish"] != None:
        publish(name = name + ".publish", card = cfg["publish"]["card"], **(text | manual | tuned | small))
    if cfg["receipt"] != None and cfg["receipt"]["anchor"] != None:
        anchor(name = name + ".anchor", stages = [":" + name + m for m in made], **(text | manual))

    bundle(name = name, deps = [":" + name + m for m in made], receipt = True, recipe = recipe, tags = tags)

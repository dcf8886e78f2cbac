"""ImageNet (body, E, F, H): the net with two large dense layers and dropout in them, and the one without either."""

from dataclasses import replace

from meannet.config import PERCENT, Arm, Claim, Data, Dropout, Experiment, Net, Optim, Patches, Source

BACKPROP = Arm(name="backprop")
DROPOUT = Arm(name="dropout", hidden=True)

OPEN = "not stated; to be chosen on validation images"
SOURCES = (
    Source(path="net.units", section="F.3", paper="rectified"),
    Source(path="net.initial_sd", section="not stated; of the softmax layer"),
    Source(path="net.initial_bias", section="F.5", paper="1"),
    Source(path="patches.size", section="H", paper="224"),
    Source(path="patches.banks", section="H", paper="64,256,512,512,512"),
    Source(path="patches.filters", section="H gives 11 and 5; 3 for the others is ours"),
    Source(path="patches.stride", section="H", paper="4"),
    Source(path="patches.groups", section="H: of 64 banks in the second layer, of 32 above", paper="1,4,16,16,16"),
    Source(path="patches.pooled", section="H", paper="1,2,5"),
    Source(path="patches.normalised", section="H", paper="1,2"),
    Source(path="patches.pool_size", section="H", paper="3"),
    Source(path="patches.pool_stride", section="H", paper="2"),
    Source(path="patches.norm_size", section=f"F.2: {OPEN}; that of G"),
    Source(path="patches.norm_alpha", section=f"F.2: {OPEN}; that of G"),
    Source(path="patches.norm_beta", section=f"F.2: {OPEN}; that of G"),
    Source(path="patches.norm_form", section="F.2 prints alpha undivided; the authors' package divided it by N"),
    Source(
        path="patches.scale", section="F.3: raw, and it matters, since response normalisation is not linear", paper="1"
    ),
    Source(path="patches.initial_sd", section="F.5: variances are tried until one works; so it is here"),
    Source(path="patches.weight_decay", section=OPEN),
    Source(
        path="patches.search",
        section="F.7: the largest power of ten that reduces the objective; how many, and below chance, is ours",
    ),
    Source(path="optim.epochs", section="not stated; ours"),
    Source(path="optim.rule", section="F.6", paper="plain"),
    Source(path="optim.batch", section="F.6", paper="128"),
    Source(path="optim.lr", section="F.7: searched for, typically 0.01 or 0.001; this where patches.search is 0"),
    Source(path="optim.decay", section="F.7: none but the two cuts", paper="1"),
    Source(path="optim.cuts", section="F.7: twice, shortly before the end; when exactly is ours"),
    Source(path="optim.momentum_start", section="F.6", paper="0.9"),
    Source(path="optim.momentum_end", section="F.6", paper="0.9"),
    Source(path="optim.limit", section=f"body: all layers have a bound; its value is {OPEN}; that of A.1"),
)


def h_backprop() -> Experiment:
    """The net without dropout: five convolutional layers and the softmax."""
    return Experiment(
        recipe="imagenet.h_backprop",
        paper="body, H",
        about="Errors on ImageNet of five convolutional layers trained by backpropagation on random patches.",
        data=Data(name="imagenet"),
        net=Net(hidden=((),), units="rectified", initial_sd=0.01, initial_bias=1.0),
        patches=Patches(weight_decay=0.0005, search=200),
        dropout=Dropout(hidden=0.5, visible=0.0),
        optim=Optim(
            epochs=90,
            rule="plain",
            batch=128,
            lr=0.01,
            decay=1.0,
            cuts=(76, 84),
            momentum_start=0.9,
            momentum_end=0.9,
            momentum_epochs=0,
            limit=15.0,
        ),
        arms=(BACKPROP,),
        seeds=(0,),
        claims=(Claim(arm="backprop", value=48.6, unit=PERCENT),),
        record_every=5,
        quick_epochs=2,
        sources=SOURCES,
        time="hours on one H200",
        next="meannet run imagenet.h_dropout --device cuda",
    )


def h_dropout() -> Experiment:
    """The net with dropout: two dense layers of 4096 above, half of whose units are omitted."""
    full = h_backprop()
    return replace(
        full,
        recipe="imagenet.h_dropout",
        about="Errors on ImageNet with two dense layers above five convolutional ones, and dropout in these two.",
        net=replace(full.net, hidden=((4096, 4096),)),
        arms=(DROPOUT,),
        claims=(Claim(arm="dropout", value=42.4, unit=PERCENT),),
        sources=(
            *SOURCES,
            Source(path="net.hidden", section="H", paper="4096,4096"),
            Source(path="dropout.hidden", section="H; the body speaks of the sixth hidden layer", paper="0.5"),
        ),
        next="meannet report RUN -o report.html",
    )

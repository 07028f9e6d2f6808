"""Losses on logits against those of torch, and the names of losses."""

import itertools
import math
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid, softplus  # noqa: E402

from closecall import nn  # noqa: E402
from closecall.losses import LOSSES, get_loss  # noqa: E402

CLASSES = 5
WEIGHT = torch.linspace(0.2, 4.0, CLASSES)


def batch(seed: int, *more: int, samples: int = 40, dtype: Any = torch.float64) -> tuple[Any, Any]:
    """Return logits (samples, classes, ...) and class targets (samples, ...)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, CLASSES, *more, generator=generator, dtype=dtype)
    return logits, torch.randint(CLASSES, (samples, *more), generator=generator)


def same(ours: Any, theirs: Any, logits: Any, *given: Any) -> None:
    """Assert that two functions of logits have equal sums and gradients."""
    found = []
    for loss in (ours, theirs):
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, *given).sum()
        found.append((value.detach(), *torch.autograd.grad(value, leaf)))
    torch.testing.assert_close(found[0], found[1])


# --- weights


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_weighted_mean_is_that_of_torch(reduction: str) -> None:
    for seed, (more, smoothing, ignored) in enumerate(itertools.product([(), (3, 4)], [0.0, 0.2], [-100, 2])):
        logits, targets = batch(seed, *more)
        targets[::7] = ignored
        options = {"ignore_index": ignored, "label_smoothing": smoothing, "reduction": reduction}
        ours, theirs = nn.AverageLoss(weight=WEIGHT, **options), torch.nn.CrossEntropyLoss(WEIGHT.double(), **options)
        same(ours, theirs, logits, targets)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_means_are_those_of_torch(soft: bool, weighted: bool) -> None:
    logits, targets = batch(0)
    logits, chances = logits[:, :2], (targets[:, None] == torch.arange(2)).double()
    chances = (
        (chances + torch.rand(40, 2, generator=torch.Generator().manual_seed(1))).clamp(max=1) if soft else chances
    )
    pos_weight = torch.tensor([3.0, 0.5]).double() if weighted else None
    ours = nn.AverageLoss("binary_cross_entropy", pos_weight=pos_weight)
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    same(ours, theirs, logits, chances)
    if not soft:  # class weights have the same effect as in cross-entropy with the logits 0 and this one
        options, signs = {"weight": torch.tensor([0.3, 2.0]).double(), "label_smoothing": 0.2}, chances[:, 0].long()
        for name in ("log_loss", "logistic", "binary_cross_entropy"):
            same(
                nn.AverageLoss(name, **options),
                lambda leaf, signs: cross_entropy(torch.stack([torch.zeros(40), leaf], 1), signs, **options),
                logits[:, 0],
                signs,
            )


@pytest.mark.parametrize("memory", [False, True])
def test_the_weighted_mean_of_the_chosen_is_torchs_mean_of_them(memory: bool) -> None:
    logits, targets = batch(1)
    # If the memory contains exactly the batch, the expected weight is the selected weight.
    options = {"memory": "global", "data_size": 40} if memory else {}
    closest = nn.logit_losses("cross_entropy", logits, targets).closeness.argsort()[:10]
    ours = nn.CloseKLoss(k=10, weight=WEIGHT, **options).double()
    same(
        lambda leaf: ours(leaf, targets),
        lambda leaf: cross_entropy(leaf[closest], targets[closest], WEIGHT.double()),
        logits,
    )
    assert ours.reducer.last_k == 10


@pytest.mark.parametrize("name", ["softmax_focal", "generalized_cross_entropy", "top_two_hinge", "hinge"])
def test_every_loss_of_classes_divides_by_the_weights(name: str) -> None:
    logits, targets = batch(1)
    losses = nn.logit_losses(name, logits, targets).losses
    expected = (losses * WEIGHT[targets]).sum() / WEIGHT[targets].sum().double()
    torch.testing.assert_close(nn.AverageLoss(name, weight=WEIGHT)(logits, targets), expected)
    ones = nn.AverageLoss(name, weight=torch.full((CLASSES,), 7.0))(logits, targets)  # a common factor has no effect
    torch.testing.assert_close(ones, losses.mean())


@pytest.mark.parametrize(
    "reducer", [nn.Tilted(0.7), nn.Tilted(-1.0, dim=1), nn.AverageTopK(0.4, temperature=0.3), nn.Trimmed(m=5)]
)
def test_the_weighted_mean_has_its_own_gradient(reducer: Any) -> None:
    logits, targets = batch(2, 2, samples=6)
    loss = nn.AggregateLoss(reducer, weight=WEIGHT)
    assert torch.autograd.gradcheck(lambda leaf: loss(leaf, targets), logits.requires_grad_())


@pytest.mark.parametrize("logits_dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weight", [[1, 2, 3, 4, 5], torch.arange(1, 6), torch.arange(1.0, 6.0).double()])
def test_weights_of_any_number_type(weight: Any, logits_dtype: Any) -> None:
    logits, targets = batch(3, dtype=torch.float32)
    logits = logits.to(logits_dtype)
    exact = logits if logits_dtype == torch.float64 else logits.float()
    theirs = cross_entropy(exact, targets, torch.as_tensor(weight).to(exact.dtype))
    torch.testing.assert_close(nn.AverageLoss(weight=weight)(logits, targets), theirs)
    one = nn.AverageLoss(weight=torch.tensor([1, 2]), pos_weight=torch.tensor(3))(logits[:, 0], targets > 1)
    factors = torch.where(targets > 1, 6.0, 1.0)
    losses = binary_cross_entropy_with_logits(exact[:, 0], (targets > 1).to(exact.dtype), reduction="none")
    by = torch.where(targets > 1, 2.0, 1.0).sum()
    torch.testing.assert_close(one, ((losses * factors).sum() / by).to(exact.dtype))


# --- targets


@pytest.mark.parametrize("more", [(), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_soft_targets_are_those_of_torch_and_a_negative_ignore_index_says_nothing_of_them(
    more: tuple[int, ...], weighted: bool
) -> None:
    logits, _ = batch(0, *more)
    soft, options = batch(1, *more)[0].softmax(dim=1), {"weight": WEIGHT.double()} if weighted else {}
    ours = nn.AverageLoss("cross_entropy", ignore_index=-100, **options)
    same(lambda leaf: ours(leaf, soft), lambda leaf: cross_entropy(leaf, soft, **options), logits)
    closeness = [nn.logit_losses("cross_entropy", logits, each).closeness for each in (soft, soft.argmax(dim=1))]
    torch.testing.assert_close(*closeness)
    kept = torch.arange(40) % 3 > 0
    mask = kept.reshape(40, *(1 for _ in more)).expand(40, *more)
    spoilt = torch.where(mask.unsqueeze(1), soft, math.nan)
    same(
        lambda leaf: ours(leaf, spoilt, mask=mask),
        lambda leaf: cross_entropy(leaf[kept], soft[kept], **options),
        logits,
    )
    with pytest.raises(ValueError, match=r"ignore_index=2 is a class.*mask="):
        nn.AverageLoss("cross_entropy", ignore_index=2)(logits, soft)


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "binary_cross_entropy"])
@pytest.mark.parametrize("ignored", [-1, 0, 1])
def test_a_class_of_two_is_not_ignored(loss: str, ignored: int) -> None:
    logits, targets = torch.randn(6), torch.tensor([1, -1, -1, 1, -1, 1])
    given = targets if loss != "binary_cross_entropy" else targets.clamp(min=0)
    with pytest.raises(ValueError, match=f"ignore_index={ignored} may be one of the two classes.*mask="):
        nn.AverageLoss(loss, ignore_index=ignored)(logits, given)
    # Use a mask instead, under which targets may have any value, or another number. With classes, any number works.
    kept = torch.arange(6) != 2
    expected = nn.AverageLoss(loss)(logits[kept], given[kept])
    spoilt = given.where(kept, -7)
    torch.testing.assert_close(nn.AverageLoss(loss)(logits, spoilt, mask=kept), expected)
    torch.testing.assert_close(nn.AverageLoss(loss, ignore_index=-7)(logits, spoilt), expected)
    many, classes = batch(0)
    classes[::5] = -1
    torch.testing.assert_close(
        nn.AverageLoss(ignore_index=-1)(many, classes), cross_entropy(many, classes, ignore_index=-1)
    )


@pytest.mark.parametrize("loss", ["log_loss", "binary_cross_entropy", "focal", "hinge"])
@pytest.mark.parametrize("masked", [False, True])
def test_one_channel_of_logits_for_a_map_of_targets(loss: str, masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 1, 6, 7, generator=generator)
    targets = torch.randint(2, (4, 6, 7), generator=generator)
    mask = torch.rand(4, 6, 7, generator=generator) < 0.7 if masked else None
    module = nn.CloseKLoss(loss, k=0.3, dim=(1, 2), pos_weight=torch.tensor(2.0))
    same(
        lambda leaf: module(leaf, targets.float() if loss == "binary_cross_entropy" else targets, mask=mask),
        lambda leaf: module(leaf.squeeze(1), targets, mask=mask),
        logits,
    )
    assert nn.margins(logits, targets).shape == targets.shape
    if loss == "log_loss" and not masked:
        theirs = binary_cross_entropy_with_logits(logits.squeeze(1), targets.float())
        torch.testing.assert_close(nn.AverageLoss()(logits, targets), theirs)
        with pytest.raises(ValueError, match="needs logits"):
            nn.AverageLoss("cross_entropy")(logits, targets.float())


# --- names


def top_two(logits: Any, targets: Any) -> Any:
    others = logits.masked_fill(torch.nn.functional.one_hot(targets, CLASSES).bool(), -math.inf)
    return logits[torch.arange(len(logits)), targets] - others.amax(dim=1)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_the_top_two_margin_say_so(name: str) -> None:
    logits, targets = batch(4)
    expected = torch.from_numpy(get_loss(name).value(top_two(logits, targets).numpy()))
    found = nn.logit_losses(f"top_two_{name}", logits, targets)
    torch.testing.assert_close(found.losses, expected)
    torch.testing.assert_close(found.closeness, (expected - get_loss(name).threshold).abs())


@pytest.mark.parametrize(
    ("old", "new", "softmax"),
    [
        ("logistic", "top_two_logistic", "cross_entropy"),
        ("focal", "top_two_focal", "softmax_focal"),
        ("generalized_ce", "top_two_generalized_cross_entropy", "generalized_cross_entropy"),
    ],
)
def test_old_names_mean_what_they_meant_and_say_what_to_write(old: str, new: str, softmax: str) -> None:
    logits, targets = batch(5)
    with pytest.warns(FutureWarning, match=f"'{new}'.*'{softmax}'"):
        value = nn.CloseKLoss(old, k=0.4)(logits, targets)
    assert value == nn.CloseKLoss(new, k=0.4)(logits, targets)
    assert value != nn.CloseKLoss(softmax, k=0.4)(logits, targets)
    for name in {old, softmax} - {"cross_entropy", "softmax_focal", "generalized_ce"}:  # unchanged for one logit
        one = nn.logit_losses(name, logits[:, 0], targets > 1)
        margin = torch.where(targets > 1, logits[:, 0], -logits[:, 0])
        torch.testing.assert_close(one.losses, torch.from_numpy(get_loss(name).value(margin.numpy())))


def test_the_generalised_cross_entropy_has_one_name() -> None:
    logits, targets = batch(6)
    with pytest.warns(FutureWarning, match="now called 'generalized_cross_entropy'"):
        old = nn.AverageLoss("generalized_ce")(logits[:, 0], targets > 1)
    assert old == nn.AverageLoss("generalized_cross_entropy")(logits[:, 0], targets > 1)
    with pytest.warns(FutureWarning, match="now called 'generalized_cross_entropy'"):
        assert get_loss("generalized_ce") is get_loss("generalized_cross_entropy")


@pytest.mark.parametrize("gamma", [None, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("alpha", [None, 0.25])
def test_focal_losses_are_the_published_ones(gamma: float | None, alpha: float | None) -> None:
    logits, targets = batch(7)
    power, signs = 2.0 if gamma is None else gamma, (targets > 1).double()

    def sigmoid_focal(leaf: Any) -> Any:
        chance = torch.sigmoid(leaf) * signs + (1 - torch.sigmoid(leaf)) * (1 - signs)
        losses = (1 - chance) ** power * binary_cross_entropy_with_logits(leaf, signs, reduction="none")
        return (losses if alpha is None else losses * (alpha * signs + (1 - alpha) * (1 - signs))).mean()

    def softmax_focal(leaf: Any) -> Any:
        log = leaf.log_softmax(dim=1)[torch.arange(40), targets]
        return ((1 - log.exp()) ** power * -log).mean()

    same(lambda leaf: nn.AverageLoss("focal", gamma=gamma, alpha=alpha)(leaf, signs), sigmoid_focal, logits[:, 0])
    same(lambda leaf: nn.AverageLoss("softmax_focal", gamma=gamma)(leaf, targets), softmax_focal, logits)
    assert torch.isfinite(nn.logit_losses("softmax_focal", 200 * logits, targets, gamma=gamma).losses).all()


@pytest.mark.parametrize("q", [0.01, 0.5, 1.0])
def test_the_exponent_of_the_generalised_cross_entropy_may_be_set(q: float) -> None:
    logits, targets = batch(8)
    own = torch.arange(40), targets
    same(
        lambda leaf: nn.AverageLoss("generalized_cross_entropy", q=q)(leaf, targets),
        lambda leaf: ((1 - leaf.softmax(dim=1)[own] ** q) / q).mean(),
        logits,
    )
    signs = torch.where(targets > 1, 1.0, -1.0).double()
    same(
        lambda leaf: nn.AverageLoss("generalized_cross_entropy", q=q)(leaf, signs),
        lambda leaf: ((1 - torch.exp(q * logsigmoid(signs * leaf))) / q).mean(),
        logits[:, 0],
    )


@pytest.mark.parametrize(("name", "options"), [("focal", {"gamma": 0.5}), ("generalized_cross_entropy", {"q": 0.2})])
def test_close_calls_are_those_of_the_loss_that_was_set(name: str, options: dict[str, float]) -> None:
    logits = torch.linspace(-3, 3, 41, dtype=torch.float64)
    found = nn.logit_losses(name, logits, torch.ones(41), **options)
    boundary = nn.logit_losses(name, torch.zeros(1).double(), torch.ones(1), **options).losses
    torch.testing.assert_close(found.closeness, (found.losses - boundary).abs())


LOGITS, TARGETS = batch(0)
BAD: list[tuple[Any, str]] = [
    *(
        (partial(nn.AverageLoss, weight=torch.tensor([1.0, bad])), "weight must be finite and not negative")
        for bad in (-1.0, math.nan, math.inf)
    ),
    (partial(nn.AverageLoss, weight=torch.tensor([1j, 1.0])), "real numbers"),
    (partial(nn.AverageLoss(weight=torch.ones(4)), LOGITS, TARGETS), r"weight needs shape \(5,\).*not \(4,\)"),
    (partial(nn.AverageLoss, "log_loss", gamma=0.5), "'log_loss' takes no gamma"),
    (partial(nn.AverageLoss, "hinge", q=0.5), "'hinge' takes no q"),
    (partial(nn.AverageLoss, "generalized_cross_entropy", alpha=0.5), "takes no alpha"),
    (partial(nn.AverageLoss, "focal", gamma=-1.0), "must lie between"),
    (partial(nn.AverageLoss, "focal", alpha=2.0), "must lie between"),
    (partial(nn.AverageLoss, "top_two_focal", gamma=math.nan), "must lie between"),
    (partial(nn.AverageLoss, "generalized_cross_entropy", q=0.0), r"q=.*must lie between"),
    (partial(nn.AverageLoss, "generalized_cross_entropy", q=1.5), r"q=.*must lie between"),
    (partial(nn.AverageLoss("softmax_focal", alpha=0.25), LOGITS, TARGETS), "takes no alpha"),
    (partial(nn.AverageLoss("top_two_logistic"), LOGITS[:, 0], TARGETS > 1), "needs logits"),
    (partial(nn.AverageLoss("binary_cross_entropy"), LOGITS, TARGETS), "needs logits of the targets' shape"),
]


def test_bad_weights_and_options_are_refused() -> None:
    for call, message in BAD:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


# --- second derivatives


SMOOTH = {
    "tilted": lambda **options: nn.Tilted(1.5, **options),
    "tilted down": lambda **options: nn.Tilted(-2.0, **options),
    "largest": lambda **options: nn.AverageTopK(0.4, temperature=0.3, **options),
    "range": lambda **options: nn.RankedRange(0.6, 0.2, temperature=0.3, **options),
    "trimmed": lambda **options: nn.Trimmed(m=0.3, temperature=0.3, **options),
}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised inside torch's own forward mode
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_smooth_losses_have_second_derivatives(name: str, dim: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    losses, mass = torch.rand(2, 4, 5, generator=generator, dtype=torch.float64)
    mask, reducer = torch.rand(4, 5, generator=generator) < 0.8, SMOOTH[name](dim=dim)
    losses.requires_grad_()
    for given in ({}, {"mass": mass, "mask": mask}):
        assert torch.autograd.gradgradcheck(lambda leaf, given=given: reducer(leaf, **given), losses)
    if dim is None:  # in forward and reverse mode, in every order
        expected = torch.autograd.functional.hessian(reducer, losses.detach())
        assert expected.abs().max() > 1e-3
        for outer in (torch.func.jacfwd, torch.func.jacrev):
            for inner in (torch.func.jacfwd, torch.func.jacrev):
                torch.testing.assert_close(outer(inner(reducer))(losses.detach()), expected)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_smooth_loss_shows_what_is_not_finite(name: str, bad: float) -> None:
    losses = torch.tensor([0.5, bad, 1.0], requires_grad=True)
    value = SMOOTH[name](nonfinite="propagate")(losses)
    value.backward()
    if name == "tilted down" and bad == math.inf:  # the outlier has no weight
        expected = SMOOTH[name](reduction="sum")(torch.tensor([0.5, 1.0])) / 2 + math.log(1.5) / 2
        assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    else:
        assert not math.isfinite(value.item())
        assert not torch.isfinite(losses.grad).all()


def test_a_tilted_loss_of_nan_has_no_finite_gradient() -> None:
    for t in (0.0, 1.0, -1.0):  # for t = 0, the value is linear, and its gradient does not depend on the losses
        losses = torch.tensor([0.5, math.nan, 1.0], requires_grad=True)
        nn.Tilted(t, nonfinite="propagate")(losses).backward()
        assert torch.isnan(losses.grad).all()


@pytest.mark.parametrize("name", ["superquantile(0.6,0.2)", "tilted(1.5)"])
def test_where_there_are_no_second_derivatives_they_are_refused(name: str) -> None:
    losses = softplus(torch.linspace(-1, 1, 9)).requires_grad_()
    value = nn.Spectrum(name)(losses)
    (slope,) = torch.autograd.grad(value, losses, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(slope.square().sum(), losses)

"""Lightning, Hugging Face's Trainer, accelerate and skorch against a plain loop: accumulation, bfloat16, resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from torch.utils.data import DataLoader, SequentialSampler, TensorDataset  # noqa: E402

from closecall.nn import CloseKLoss, KDecay  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages
MICRO, ACCUMULATED, EPOCHS, RATE = 4, 4, 2, 0.3
SAMPLES = 64
STEPS = EPOCHS * SAMPLES // (MICRO * ACCUMULATED)


def needs(package: str) -> Any:
    return pytest.importorskip(package, reason=f'needs {package}: pip install "closecall[integrations]"')


def make_data() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 5, generator=generator), torch.randint(3, (SAMPLES,), generator=generator)


def make_model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def make_loss() -> Any:
    return CloseKLoss("cross_entropy", k=0.4, memory="global", memory_size=32, ignore_index=-100)


def plain() -> Any:
    """Return the parameters after two epochs of a plain loop, which all integrations must reproduce."""
    (inputs, targets), model, loss = make_data(), make_model(), make_loss()
    schedule, optimizer = KDecay(loss, STEPS), torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for step, rows in enumerate(torch.arange(SAMPLES).split(MICRO)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = loss(model(inputs[rows]), targets[rows])
            (value / ACCUMULATED).backward()
            if (step + 1) % ACCUMULATED == 0:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
    return flat(model)


def flat(model: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def check(model: Any) -> None:
    expected = plain()
    assert not torch.allclose(expected, flat(make_model()), atol=1e-3)
    torch.testing.assert_close(flat(model), expected, rtol=1e-6, atol=1e-6)


def test_lightning(tmp_path: Path) -> None:
    lightning = needs("lightning")
    from closecall.nn.integrations.lightning import LightningSchedule

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = make_model(), make_loss()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    def fit(epochs: int, resume: Any = None) -> tuple[Any, Any, Any]:
        callback = LightningSchedule(lambda trainer, module: KDecay(module.loss, STEPS))
        trainer = lightning.Trainer(
            accelerator="cpu",
            precision="bf16-mixed",
            accumulate_grad_batches=ACCUMULATED,
            max_epochs=epochs,
            callbacks=[callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        module = Module()
        trainer.fit(module, DataLoader(TensorDataset(*make_data()), batch_size=MICRO), ckpt_path=resume)
        return trainer, module, callback

    _, module, callback = fit(EPOCHS)
    assert callback.schedule.last_step == STEPS
    check(module.model)
    trainer, _, _ = fit(1)
    assert trainer.callback_metrics["k"] > 0
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed, callback = fit(EPOCHS, tmp_path / "half.ckpt")
    assert callback.schedule.last_step == STEPS
    check(resumed.model)


def test_hugging_face(tmp_path: Path) -> None:
    transformers = needs("transformers")
    needs("accelerate")
    from closecall.nn.integrations.transformers import TrainerLoss, TrainerSchedule

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()

        def forward(self, inputs: Any, labels: Any = None) -> dict[str, Any]:
            return {"logits": self.model(inputs)}

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(self.train_dataset)

    def trainer(**more: Any) -> Any:
        loss = make_loss()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=MICRO,
            gradient_accumulation_steps=ACCUMULATED,
            num_train_epochs=EPOCHS,
            optim="sgd",
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            bf16=True,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="epoch",
            logging_steps=1,
            remove_unused_columns=False,
            **more,
        )
        data = [{"inputs": row, "labels": target} for row, target in zip(*make_data(), strict=True)]
        callbacks = [TrainerSchedule(KDecay(loss, STEPS))]
        sets = {"train_dataset": data, "eval_dataset": [row | {"inputs": 50 * row["inputs"]} for row in data]}
        return InOrder(Model(), arguments, **sets, compute_loss_func=TrainerLoss(loss), callbacks=callbacks)

    reset()
    first = trainer()
    first.train()
    check(first.model)
    assert all(entry["k"] > 0 for entry in first.state.log_history if "loss" in entry)
    second = trainer()
    second.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS // 2}"))
    check(second.model)
    third = trainer(eval_strategy="steps", eval_steps=1)  # validation data must have no effect
    third.train()
    check(third.model)
    memory = third.compute_loss_func.loss.reducer.memory
    before = memory.keys.clone()
    third.evaluate()
    assert torch.equal(memory.keys, before)
    assert before.max() > 0


def reset() -> None:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def test_accelerate(tmp_path: Path) -> None:
    accelerate = needs("accelerate")
    from closecall.nn.integrations.accelerate import AcceleratedSchedule

    def run(epochs: list[int], resume: bool) -> Any:
        reset()
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=ACCUMULATED)
        model, loss = make_model(), make_loss()
        schedule = AcceleratedSchedule(KDecay(loss, STEPS), accelerator)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        loader = DataLoader(TensorDataset(*make_data()), batch_size=MICRO)
        prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        accelerator.register_for_checkpointing(schedule, loss)
        if resume:
            accelerator.load_state(str(tmp_path / "state"))
        for _ in epochs:
            for inputs, targets in loader:
                with accelerator.accumulate(prepared):
                    accelerator.backward(loss(prepared(inputs), targets))
                    optimizer.step()
                    optimizer.zero_grad()
                schedule.step()
        accelerator.save_state(str(tmp_path / "state"))
        return model

    check(run([0, 1], resume=False))
    run([0], resume=False)
    check(run([1], resume=True))


def test_skorch_probabilities_are_probabilities() -> None:
    needs("skorch")
    from closecall.nn.integrations.skorch import AggregateNetClassifier, SkorchSchedule

    inputs, targets = (each.numpy() for each in make_data())
    for outputs, labels, loss in ((3, targets, "cross_entropy"), (1, (targets > 0).astype(np.int64), "logistic")):
        torch.manual_seed(0)
        net = AggregateNetClassifier(
            torch.nn.Linear(5, outputs),
            criterion=CloseKLoss,
            criterion__loss=loss,
            criterion__k=0.5,
            max_epochs=6,
            lr=0.1,
            batch_size=16,
            train_split=None,
            callbacks=[SkorchSchedule()],
            verbose=0,
        ).fit(inputs, labels)
        found = net.predict_proba(inputs)
        assert found.shape == (SAMPLES, max(outputs, 2))
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
        assert found.min() >= 0
        with torch.no_grad():
            logits = net.module_(torch.as_tensor(inputs))
        expected = logits.argmax(dim=1) if outputs > 1 else (logits[:, 0] > 0).long()
        np.testing.assert_array_equal(net.predict(inputs), expected)
        assert net.criterion_.reducer.schedules["k"].last_step == 6


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from closecall.nn.integrations import lightning, skorch, transformers

    for module in (lightning, skorch):
        monkeypatch.setattr(module, "Callback", None)
    monkeypatch.setattr(transformers, "TrainerCallback", None)
    for schedule in (lightning.LightningSchedule, transformers.TrainerSchedule, skorch.SkorchSchedule):
        with pytest.raises(ImportError, match=r"closecall\[integrations\]"):
            schedule(lambda *given: None)


def test_the_trainers_loss_counts_items() -> None:
    from closecall.nn import AverageLoss
    from closecall.nn.integrations.transformers import TrainerLoss

    logits = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(5, (2, 6), generator=torch.Generator().manual_seed(1))
    labels[0, :3] = -100
    loss = TrainerLoss(AverageLoss("cross_entropy", ignore_index=-100), shift=True)
    kept = labels[:, 1:] != -100
    expected = torch.nn.functional.cross_entropy(logits[:, :-1][kept], labels[:, 1:][kept], reduction="sum") / 40
    torch.testing.assert_close(loss({"logits": logits}, labels, num_items_in_batch=40), expected)
    with pytest.raises(ValueError, match="a single number"):
        TrainerLoss(AverageLoss("cross_entropy", reduction="none"))

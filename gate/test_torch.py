"""torch.compile with its default backend: a C compiler runs, for seconds."""

import math

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from tests.nn.test_functional import reduced  # noqa: E402


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised inside torch's own compiler
def test_compile_with_the_default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process: the compiler's own pool of processes would import torch twice more for one small graph. No
    # vectors, so that the code is the same for every processor, and no headers compiled for graphs to come.
    settings = {"compile_threads": 1, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False}
    for name, value in settings.items():
        monkeypatch.setattr(f"torch._inductor.config.{name}", value)
    function = reduced("close")
    losses = torch.rand(50, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(function, fullgraph=True)  # a C compiler runs: one graph, forward only, to save time
    torch.testing.assert_close(compiled(losses), function(losses))
    with pytest.raises(ValueError, match="NaN"):
        compiled(torch.where(torch.arange(50) == 3, math.nan, losses))
    torch._dynamo.reset()

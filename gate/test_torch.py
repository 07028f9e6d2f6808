"""torch.compile with its default backend, which runs a C compiler for some seconds."""

import math

import pytest
import torch

from tests.nn.test_functional import reduced


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised inside torch's own compiler
def test_compile_with_the_default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a pool of processes, because each would import torch for one small graph; without vectors, so that the
    # code is the same for every processor; and without compiled headers, which only later graphs would use.
    settings = {"compile_threads": 1, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False}
    for name, value in settings.items():
        monkeypatch.setattr(f"torch._inductor.config.{name}", value)
    function = reduced("close")
    losses = torch.rand(50, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(function, fullgraph=True)  # one graph, forward only, to save time
    torch.testing.assert_close(compiled(losses), function(losses))
    with pytest.raises(ValueError, match="NaN"):
        compiled(torch.where(torch.arange(50) == 3, math.nan, losses))
    torch._dynamo.reset()

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Five loops that do not wait for the GPU: training with FSDP2 and DDP, compiled graphs, and two kinds of prefetching.

Each is a function of PyTorch and a seed, and returns a function that runs one step, as in workloads.py. In these loops
Python runs ahead of the GPU, so blocks are released while work on them is still queued, often on several streams. All but
the compiled loop are large enough that the GPU is busy longer than Python. The process group has one rank, which needs
no network.
"""
from __future__ import annotations

from typing import Any, Callable

from workloads import Step, _made_on_gpu, streams

WIDTH = 2048


def _group(torch: Any) -> None:
    """The process group of this process alone."""
    distributed = torch.distributed
    if not distributed.is_initialized():
        distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1,
                                       device_id=torch.device("cuda", 0))


def _block(torch: Any) -> Any:
    """A layer of a transformer."""
    functional = torch.nn.functional

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = torch.nn.LayerNorm(WIDTH)
            self.mixed = torch.nn.Linear(WIDTH, 3 * WIDTH)
            self.joined = torch.nn.Linear(WIDTH, WIDTH)
            self.after = torch.nn.LayerNorm(WIDTH)
            self.wide = torch.nn.Linear(WIDTH, 4 * WIDTH)
            self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, tokens: Any) -> Any:
            batch, length, _ = tokens.shape
            heads = self.mixed(self.before(tokens)).view(batch, length, 3, 16, WIDTH // 16).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
            tokens = tokens + self.joined(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
            return tokens + self.narrow(functional.gelu(self.wide(self.after(tokens))))

    return Block()


def _tokens(torch: Any, seed: int, batches: tuple[int, int], lengths: tuple[int, int]) -> Callable[[], Any]:
    """Batches of random shape, made on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    on_gpu = torch.Generator("cuda").manual_seed(seed)

    def tokens() -> Any:
        batch = int(torch.randint(*batches, (), generator=generator))
        length = 8 * int(torch.randint(lengths[0] // 8, lengths[1] // 8, (), generator=generator))
        return torch.randn(batch, length, WIDTH, device="cuda", dtype=torch.bfloat16, generator=on_gpu)
    return tokens


def _train(torch: Any, model: Any, tokens: Callable[[], Any]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(_: int) -> Any:
        loss = model(tokens()).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def fsdp(torch: Any, seed: int) -> Step:
    """FSDP2: eight layers, each gathered ahead on a stream of its own, with checkpointing."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.utils.checkpoint import checkpoint
    _group(torch)
    torch.manual_seed(seed)
    with torch.device("cuda"):
        model = torch.nn.Sequential(*[_block(torch) for _ in range(8)])
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model:
        fully_shard(layer, mp_policy=precision)
    fully_shard(model, mp_policy=precision)

    def forward(tokens: Any) -> Any:
        for layer in model:
            tokens = checkpoint(layer, tokens, use_reentrant=False)
        return tokens
    model.forward = forward
    return _train(torch, model, _tokens(torch, seed, (12, 37), (512, 1536)))


def ddp(torch: Any, seed: int) -> Step:
    """DistributedDataParallel: gradients are reduced in buckets on another stream while the backward pass runs."""
    _group(torch)
    with _made_on_gpu(torch, seed):
        model = torch.nn.Sequential(*[_block(torch) for _ in range(6)])
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    return _train(torch, model, _tokens(torch, seed, (6, 19), (512, 1536)))


def compiled(torch: Any, seed: int) -> Step:
    """Compiled graphs of three shapes (graph trees) between eager blocks of random size."""
    with _made_on_gpu(torch, seed):
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                                                          torch.nn.Linear(4 * WIDTH, WIDTH)) for _ in range(4)])
    graphs = torch.compile(model, mode="reduce-overhead", dynamic=False)
    generator = torch.Generator().manual_seed(seed)
    on_gpu = torch.Generator("cuda").manual_seed(seed)

    def step(number: int) -> Any:
        tokens = torch.randn(1024 * (1 + number % 3), WIDTH, device="cuda", dtype=torch.bfloat16, generator=on_gpu)
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            answer = graphs(tokens).float().sum()
            for _ in range(8):
                count = int(torch.randint(1 << 18, 50 << 18, (), generator=generator))
                answer = answer + torch.ones(count, device="cuda").sum()
        return answer
    return step


def streamed(torch: Any, seed: int) -> Step:
    """Inference with layers that come from pinned memory, each copied ahead on another stream."""
    with _made_on_gpu(torch, seed):
        layers = [_block(torch) for _ in range(6)]
    weights = [{name: value.detach().cpu().pin_memory() for name, value in layer.named_parameters()} for layer in layers]
    frame = layers.pop().requires_grad_(False)
    layers.clear()
    tokens = _tokens(torch, seed, (24, 73), (384, 1152))
    side = torch.cuda.Stream()

    def fetch(number: int) -> dict[str, Any]:
        with torch.cuda.stream(side):
            return {name: value.to("cuda", non_blocking=True) for name, value in weights[number].items()}

    def step(_: int) -> Any:
        main = torch.cuda.current_stream()
        values, ahead = tokens(), fetch(0)
        with torch.no_grad():
            for number in range(len(weights)):
                main.wait_stream(side)
                here, ahead = ahead, fetch(number + 1) if number + 1 < len(weights) else {}
                for value in here.values():
                    value.record_stream(main)
                values = torch.func.functional_call(frame, here, (values,))
        return values.float().mean()
    return step


def prefetch(torch: Any, seed: int) -> Step:
    """The workload `streams` with larger images: they are copied and enlarged on two other streams, one batch ahead."""
    return streams(torch, seed, counts=(48, 97), sides=(8, 12))


LOOPS: dict[str, Callable[[Any, int], Step]] = {
    function.__name__: function for function in (fsdp, ddp, compiled, streamed, prefetch)}

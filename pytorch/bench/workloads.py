# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Eight common workloads. Each is a function of PyTorch and a seed, and returns a function that runs one step.

A step returns its loss, or what else shows that it computed the same. What is random comes from generators with
the seed, so that every allocator meets the same requests; data is made on the GPU where data of a real run would
not be made in the step. The models are wide and have few layers: the GPU is busy while Python issues the next
operations, as in a large training, as far as the kind of work allows.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

Step = Callable[[int], Any]
Shape = Callable[[Any], "tuple[int, int]"]


@contextlib.contextmanager
def _made_on_gpu(torch: Any, seed: int) -> Iterator[None]:
    """Tensors that are created inside are on the GPU, in bfloat16."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _llama(torch: Any, layers: int, seed: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=32000, hidden_size=3072, intermediate_size=8192, num_hidden_layers=layers,
                         num_attention_heads=24, num_key_value_heads=24, max_position_embeddings=4096)
    with _made_on_gpu(torch, seed):
        return LlamaForCausalLM(config).to(torch.bfloat16)


def _train_llama(torch: Any, seed: int, layers: int, shape: Shape, checkpoints: bool) -> Step:
    model = _llama(torch, layers, seed)
    if checkpoints:
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(seed)

    def step(_: int) -> Any:
        tokens = torch.randint(32000, shape(generator), generator=generator).cuda()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def _random_shape(torch: Any, batches: tuple[int, int], lengths: tuple[int, int]) -> Shape:
    def shape(generator: Any) -> tuple[int, int]:
        batch = int(torch.randint(*batches, (), generator=generator))
        return batch, int(torch.randint(*lengths, (), generator=generator))
    return shape


def train_varlen(torch: Any, seed: int) -> Step:
    """A Llama of five layers with AdamW, random batch and sequence length."""
    return _train_llama(torch, seed, 5, _random_shape(torch, (4, 9), (384, 1537)), False)


def train_fixed(torch: Any, seed: int) -> Step:
    """The same at a fixed shape."""
    return _train_llama(torch, seed, 5, lambda _: (6, 1024), False)


def train_checkpoint(torch: Any, seed: int) -> Step:
    """Six layers with gradient checkpointing, random lengths."""
    return _train_llama(torch, seed, 6, _random_shape(torch, (4, 13), (256, 1537)), True)


def mixture(torch: Any, seed: int) -> Step:
    """A mixture of experts; the router decides the number of tokens of each expert."""
    width, experts = 2048, 8

    class Mixture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = torch.nn.Linear(width, experts)
            self.experts = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                    torch.nn.Linear(4 * width, width)) for _ in range(experts))

        def forward(self, tokens: Any) -> Any:
            weights, chosen = self.router(tokens).softmax(-1).topk(2, dim=-1)
            out = torch.zeros_like(tokens)
            for number, expert in enumerate(self.experts):
                rows, place = (chosen == number).nonzero(as_tuple=True)
                out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, place, None])
            return tokens + out

    with _made_on_gpu(torch, seed):
        model = torch.nn.Sequential(*[Mixture() for _ in range(2)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(seed)
    on_gpu = torch.Generator("cuda").manual_seed(seed)

    def step(_: int) -> Any:
        count = int(torch.randint(4096, 32769, (), generator=generator))
        tokens = torch.randn(count, width, device="cuda", dtype=torch.bfloat16, generator=on_gpu)
        loss = model(tokens).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def generate(torch: Any, seed: int) -> Step:
    """Generation with a growing cache and random prompts."""
    model = _llama(torch, 5, seed).eval()
    generator = torch.Generator().manual_seed(seed)

    def step(_: int) -> Any:
        batch = int(torch.randint(2, 17, (), generator=generator))
        length = int(torch.randint(64, 1025, (), generator=generator))
        tokens = torch.randint(32000, (batch, length), generator=generator).cuda()
        with torch.no_grad():
            answer = model(input_ids=tokens, use_cache=True)
            for _ in range(16):
                tokens = answer.logits[:, -1:].argmax(-1)
                answer = model(input_ids=tokens, past_key_values=answer.past_key_values, use_cache=True)
        return answer.logits.float().sum()
    return step


def detection(torch: Any, seed: int) -> Step:
    """Training of a detector on images of random sizes."""
    import torchvision
    torch.manual_seed(seed)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21)
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    on_gpu = torch.Generator("cuda").manual_seed(seed)

    def image() -> Any:
        sides = [int(torch.randint(320, 1025, (), generator=generator)) for _ in range(2)]
        return torch.rand(3, *sides, device="cuda", generator=on_gpu)

    def target() -> dict[str, Any]:
        count = int(torch.randint(1, 21, (), generator=generator))
        corner = torch.rand(count, 2, generator=generator) * 200
        boxes = torch.cat([corner, corner + 20 + torch.rand(count, 2, generator=generator) * 90], dim=1)
        return {"boxes": boxes.cuda(), "labels": torch.randint(1, 21, (count,), generator=generator).cuda()}

    def step(_: int) -> Any:
        images = [image() for _ in range(int(torch.randint(1, 4, (), generator=generator)))]
        loss = sum(model(images, [target() for _ in images]).values())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def graph_network(torch: Any, seed: int) -> Step:
    """A graph attention network on graphs of random sizes."""
    from torch_geometric.nn import GATConv
    torch.manual_seed(seed)
    layers = torch.nn.ModuleList([GATConv(128, 64, heads=4), GATConv(256, 64, heads=4), GATConv(256, 64, heads=4)])
    layers = layers.cuda()
    head = torch.nn.Linear(256, 32).cuda()
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    on_gpu = torch.Generator("cuda").manual_seed(seed)

    def step(_: int) -> Any:
        nodes = int(torch.randint(10_000, 80_001, (), generator=generator))
        degree = int(torch.randint(5, 21, (), generator=generator))
        edges = torch.randint(nodes, (2, nodes * degree), device="cuda", generator=on_gpu)
        values = torch.randn(nodes, 128, device="cuda", generator=on_gpu)
        for layer in layers:
            values = torch.nn.functional.elu(layer(values, edges))
        labels = torch.randint(32, (nodes,), device="cuda", generator=on_gpu)
        loss = torch.nn.functional.cross_entropy(head(values), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def streams(torch: Any, seed: int, counts: tuple[int, int] = (64, 129), sides: tuple[int, int] = (5, 8)) -> Step:
    """Training with images of random sizes, which are copied from pinned memory and enlarged on other streams."""
    import torchvision
    torch.manual_seed(seed)
    model = torchvision.models.resnet50(weights=None).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    others = [torch.cuda.Stream(), torch.cuda.Stream()]
    pixels = torch.randint(256, (counts[1] * 3 * (16 * sides[1]) ** 2,), dtype=torch.uint8, generator=generator)

    def fetch(number: int) -> tuple[Any, Any, Any]:
        side = 16 * int(torch.randint(*sides, (), generator=generator))
        count = int(torch.randint(*counts, (), generator=generator))
        images = pixels[:count * 3 * side * side].view(count, 3, side, side).pin_memory()
        labels = torch.randint(1000, (count,), generator=generator).pin_memory()
        stream = others[number % 2]
        with torch.cuda.stream(stream):
            small = images.to("cuda", non_blocking=True) / 127.5 - 1
            large = torch.nn.functional.interpolate(small, scale_factor=2, mode="bilinear")
            return large, labels.to("cuda", non_blocking=True), stream

    ahead = [fetch(0)]

    def step(number: int) -> Any:
        ahead.append(fetch(number + 1))
        images, labels, stream = ahead.pop(0)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor in (images, labels):
            tensor.record_stream(torch.cuda.current_stream())
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


WORKLOADS: dict[str, Callable[[Any, int], Step]] = {
    function.__name__: function for function in (train_varlen, train_fixed, train_checkpoint, mixture, generate,
                                                 detection, graph_network, streams)}

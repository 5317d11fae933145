# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A tour of tidemark.torch, to be run as a whole or cell by cell (# %%)."""

# %% Install Tidemark before CUDA is used. Everything else is ordinary PyTorch.
import tidemark.torch

done = tidemark.torch.install(policy="tide")
print(f"installed as {done.way}, from {done.library}")

import torch  # noqa: E402  (the order does not matter, only that CUDA is not in use)

# %% Training with random lengths, which fragments a cache.
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(512, 8, batch_first=True), 6).cuda()
optimizer = torch.optim.AdamW(model.parameters())
generator = torch.Generator().manual_seed(0)
for step in range(20):
    length = int(torch.randint(64, 1024, (), generator=generator))
    loss = model(torch.randn(16, length, 512, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

# %% How much memory was reserved, and how much of it was needed.
numbers = tidemark.torch.stats()
held, needed = torch.cuda.max_memory_reserved() >> 20, torch.cuda.max_memory_allocated() >> 20
print(f"reserved {held} MiB for {needed} MiB: {numbers['utilisation']:.3f}")
print("driver calls:", {name: calls["calls"] for name, calls in numbers["driver_calls"].items()})

# %% Out of memory raises PyTorch's own exception; the report says what was tried and which blocks are in the way.
try:
    torch.empty(2**48, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print(tidemark.torch.explain_oom())

# %% A snapshot, for PyTorch's viewer or `tidemark report`.
torch.cuda.memory._record_memory_history()
model(torch.randn(4, 100, 512, device="cuda"))
print("written:", tidemark.torch.snapshot("tour.pickle"))

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Large NumPy arrays, made and dropped again and again. Prints sums that no allocator may change."""
import hashlib
import threading

import numpy as np


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()[:16]


def work(seed, results):
    random = np.random.default_rng(seed)
    image = random.integers(0, 255, (300, 400, 3), dtype=np.uint8)
    field = random.standard_normal((200, 500))
    for _ in range(20):
        field = np.roll(field, 1, axis=0) * 0.5 + field * 0.5
        image = np.concatenate((image[100:], image[:100] ^ 0x55))
    table = np.sort(random.integers(0, 1 << 40, 200000))
    joined = np.pad(np.vstack([table.reshape(400, -1)] * 3), 7)
    grown = np.empty(0, dtype=np.int64)
    for i in range(30):
        grown = np.append(grown, np.arange(i * 1000))
    grown.resize(grown.size * 2, refcheck=False)
    zeros = np.zeros((1000, 1000))
    results[seed] = [digest(image), digest(field), digest(joined), digest(grown), float(zeros.sum())]


results = {}
threads = [threading.Thread(target=work, args=(seed, results)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for seed in sorted(results):
    print(seed, *results[seed])

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tidemark, the memory system of a deep-learning runtime. For PyTorch: see tidemark.torch."""
__version__ = "0.1.0"

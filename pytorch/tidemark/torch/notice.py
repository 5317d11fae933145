# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Warnings that a job of many processes gives once.

A process that has warned notes it in its environment, which its children inherit. Processes that a launcher started side
by side have no common parent in Python, so only the first one of a computer warns.
"""
from __future__ import annotations

import os
import warnings

WARNED = "TIDEMARK_WARNED"
# How launchers number the processes of a computer: torchrun, Open MPI, Slurm, MPICH.
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")


def is_first_rank() -> bool:
    """Is this the first process of its job on this computer? True if nothing says otherwise."""
    given = [os.environ[name] for name in LOCAL_RANKS if os.environ.get(name)]
    return not given or given[0] == "0"


def warn(key: str, text: str, stacklevel: int = 2) -> None:
    """Warns, unless this process, one above it, or another rank warns of the same `key`."""
    warned = os.environ.get(WARNED, "").split(",")
    if key in warned:
        return
    os.environ[WARNED] = ",".join([name for name in warned if name] + [key])
    if is_first_rank():
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel + 1)

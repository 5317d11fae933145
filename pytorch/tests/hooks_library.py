# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""libtidemark_torch.so for the tests that need it; they are skipped without a C++ compiler."""
import ctypes
import unittest

from tidemark.torch import build, library


def load():
    try:
        return ctypes.CDLL(str(library.find("libtidemark_torch.so")))
    except library.NotFound as error:
        if build.compiler() is None:
            raise unittest.SkipTest(f"no C++ compiler: {error}") from error
        raise

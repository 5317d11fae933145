# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Installs the allocator as soon as `torch` is imported. tidemark.pth imports this module at the start of every Python
process whose environment has TIDEMARK_TORCH.

Nothing here may fail or cost time, because it runs in programs that do not use PyTorch, too.
"""
from __future__ import annotations

import sys
from typing import Any, Optional


class TorchFinder:
    """Finds `torch` as the other finders do, and adds a call to the end of its import."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """The specification of `torch`; None for every other module."""
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, TorchFinder) else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if getattr(spec, "loader", None) is not None:
                    _call_after(spec.loader)
                return spec
        return None


def _call_after(loader: Any) -> None:
    """Lets the loader call install() when the module is complete. A failed import leaves the hook as it was."""
    original = loader.exec_module

    def exec_module(module: Any) -> None:
        original(module)
        try:
            del loader.exec_module
        except AttributeError:
            pass
        if is_armed():
            disarm()
            _install()

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass  # a loader without a place for it: PyTorch stays as it is


def _install() -> None:
    """install() by the environment. Whatever goes wrong is a warning: the program runs on PyTorch's allocator."""
    try:
        import tidemark.torch
        tidemark.torch.install()
    except Exception as error:
        _report(error)


def _report(error: Exception) -> None:
    text = f"tidemark: TIDEMARK_TORCH has no effect: {error}"
    try:
        from tidemark.torch import notice
        notice.warn("hook", text)
    except Exception:  # warnings may be errors, and the package may be damaged
        print(text, file=sys.stderr)


def is_armed() -> bool:
    """Will the next import of `torch` call install()?"""
    return any(isinstance(finder, TorchFinder) for finder in sys.meta_path)


def arm() -> None:
    """Makes the next import of `torch` call install()."""
    if not is_armed() and "torch" not in sys.modules:
        sys.meta_path.insert(0, TorchFinder())


def disarm() -> None:
    """Undoes arm(); whoever calls install() does it first."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TorchFinder)]

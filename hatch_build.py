"""Build hook: puts into the wheel the CPU kernel, if it can be compiled, `meannet bench`'s peers, and kept results."""

import importlib.util
import platform
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":  # they are found in the checkout then
            for peer in (Path(self.root) / "benchmarks").glob("*.py"):
                build_data["force_include"][str(peer)] = f"meannet/bench/peers/{peer.name}"
            for result in (Path(self.root) / "results").glob("*/*.json"):
                build_data["force_include"][str(result)] = f"meannet/results/{result.parent.name}/{result.name}"
        source = Path(self.root) / "src" / "meannet" / "fast" / "build.py"
        spec = importlib.util.spec_from_file_location("kernel_build", source)
        assert spec is not None and spec.loader is not None
        kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernel)
        if reason := kernel.build():
            self.app.display_warning(f"no CPU kernel, the plain path will be used: {reason}")
            return
        # Python for Macs may be for both kinds of processor; the kernel is for the one it was compiled on.
        name = sysconfig.get_platform().replace("universal2", platform.machine())
        tag = name.replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        build_data["artifacts"].append(f"src/meannet/fast/{kernel.LIBRARY}")

"""Puts the C++ libraries that the build made into the package: pip install . after cmake --build.

Without them the package is there all the same, and what needs them says so (TK1503, TK1015).
"""

import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
(HERE / "build").mkdir(exist_ok=True)
LIBRARIES = ("libtokamak_engine.so", "libtokamak_npu.so")


class WithLibraries(build_py):
    def run(self):
        super().run()
        for name in LIBRARIES:
            built = HERE / "build" / "lib" / name
            if built.is_file():
                to = Path(self.build_lib) / "tokamak" / "native"
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(built, to / name)
            else:
                print(f"warning: {built} is not there; build the target first to have it inside")


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return True  # a wheel for this platform


setup(
    cmdclass={"build_py": WithLibraries},
    distclass=OfThisMachine,
    # Beside what CMake makes in build/.
    options={"build": {"build_base": "build/python"}, "egg_info": {"egg_base": "build"}},
)

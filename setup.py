"""The compiled part of the engine, in addition to pyproject.toml.

It is optional: without a C compiler the installation succeeds, and torch computes.
"""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("src/transduce/engine/csrc")

setup(
    ext_modules=[
        Extension(
            "transduce.engine._native",
            sources=sorted(map(str, SOURCES.glob("*.c"))),
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            extra_compile_args=[
                "-O3",
                "-ffp-contract=fast",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-pthread",
            ],
            extra_link_args=["-pthread"],
            libraries=["m"],
            optional=True,
        )
    ]
)

"""torch.compile(model, backend="tokamak"): see docs/torch-compile.md.

Enter at `compiler.py`. `inplace` and `partition` change the FX graph, `lower` writes it as text,
`run` holds the engine's side of it, `library` binds the engine. Must not know: names of models.
"""


def tokamak(gm, example_inputs, **options):
    """The backend, as torch.compile calls it."""
    from .compiler import tokamak as compile_graph

    return compile_graph(gm, example_inputs, **options)


def explain(model, inputs, **options):
    from .explanation import explain as run

    return run(model, inputs, **options)

# SPDX-License-Identifier: Apache-2.0
"""Norms whose inputs are computed again from rounded maps: the error may be small in the map, and large in the norm."""

import functools

from . import forms, norms
from .plan import evaluate


def widen(chooser):
    """Keeps maps in more bits, in 16 or all, where a norm would scale their error up."""
    for group in chooser.groups.values():
        if group.recipe is None or not norms.reads(chooser.nodes, group):
            continue
        for key in group.recipe.groups:
            _drop_too_coarse(chooser, group, chooser.groups[key])
        for bits in ("fine", "exact"):
            rounded = [chooser.groups[key] for key in group.recipe.groups
                       if isinstance(chooser.groups[key].form, forms.Narrow)]
            if not rounded or _bears(chooser, group):
                break
            for source in rounded:
                setattr(source, bits, True)
                source.form, source.kept_bytes = None, source.bytes
                chooser.choose_form(source)


def _drop_too_coarse(chooser, group, source):
    """Of what a policy that chooses among formats may round to."""
    before = source.form
    for name, choice in list(source.narrower.items()):
        source.form = choice.form
        if not _bears(chooser, group):
            del source.narrower[name]
    source.form = before


def _bears(chooser, group):
    error = _given(chooser, group) - chooser.recorded(group)
    return norms.bear(chooser.nodes, group, error)


def _given(chooser, group):
    """The row that a reader of a group will be given."""
    if group.recipe is not None:
        run = functools.partial(chooser.run, exact=False)
        return forms.row_of(evaluate(
            group.recipe.call, run, lambda source: _given(chooser, chooser.groups[source.group]), chooser.composer.held))
    row = chooser.recorded(group)
    if not isinstance(group.form, forms.Narrow):
        return row
    return group.form.load(group.form.store(row), row.dtype, row.numel(), row.device)

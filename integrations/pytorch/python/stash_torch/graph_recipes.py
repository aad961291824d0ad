# SPDX-License-Identifier: Apache-2.0
"""Recipes of a training graph, of those that gave the saved bits in the recorded step."""

from .graph_storages import append, places
from .values import is_view

MOST_OPS = 8  # of a recipe of a training graph


def recipes_of(plan, graph, op_of, target_of):
    """op_of: node -> its forward op. target_of: group -> its storage.

    A recipe of a training graph starts from maps that are kept. So one that starts from what is computed again is there
    with the ops of that, too, one more of them at a time."""
    facts, found = _Facts(graph), []
    for group in plan.groups.values():
        recipe, nodes, sources = plan.chosen(group).recipe, set(), set()
        while recipe is not None:
            nodes |= {call.node for call in recipe.calls if not is_view(plan.nodes[call.node])}
            sources |= recipe.groups
            append(found, facts.recipe(target_of(group), sorted(op_of[each] for each in nodes)))
            again = next((key for key in sorted(sources) if plan.chosen(plan.groups[key]).recipe is not None), None)
            recipe = plan.chosen(plan.groups[again]).recipe if again is not None else None
            sources.discard(again)
    return found


class _Facts:
    def __init__(self, graph):
        self.graph, self.writers = graph, {}
        for number, op in enumerate(graph["ops"]):
            if op["stage"] == "forward":
                for place in places(op.get("outputs", ())):
                    self.writers.setdefault(place, []).append(number)

    def recipe(self, target, ops):
        """None where these ops are no recipe that a training graph may have (docs/graph.md)."""
        if not 0 < len(ops) <= MOST_OPS or target is None or self.writers.get(target, [None])[-1] != ops[-1]:
            return None
        sources = []
        for number in ops:
            read = places(self.graph["ops"][number].get("inputs", ()))
            if not read or any(self.graph["storages"][each]["role"] != "feature_map" for each in read):
                return None
            for place in read:
                maker = max(each for each in self.writers[place] if each < number)
                if maker in ops:
                    continue
                if maker != self.writers[place][-1] or place == target:
                    return None
                append(sources, place)
        return {"target": target, "sources": sources, "ops": ops}

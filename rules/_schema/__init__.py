"""The sections of a recipe, one file each; `rules/recipe.py` puts them together."""

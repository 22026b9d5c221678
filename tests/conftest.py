"""How property tests run: the same examples every time, on machines of any speed.

`pytest --hypothesis-profile=default` looks for new ones.
"""

from hypothesis import settings

settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")

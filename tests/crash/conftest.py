"""What did not hold is told in full, from the modules beside the tests as well."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.crash.scene", "tests.crash.dooms")

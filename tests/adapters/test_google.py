"""Tokens: what is asked of Google's credentials."""

from __future__ import annotations

from typing import Any

import google.auth
import pytest
from lustrum.adapters.google import Tokens
from lustrum.core.settings import Settings


class Credentials:
    """Credentials that are valid once refreshed."""

    valid = False
    token = ""

    def refresh(self, request: Any) -> None:
        self.valid = True
        self.token += "t"


class TestTokens:
    def test_token_carries_the_email_that_rbac_matches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        def default(scopes: tuple[str, ...]) -> tuple[Credentials, str]:
            asked.extend(scopes)
            return Credentials(), "p"

        monkeypatch.setattr(google.auth, "default", default)
        tokens = Tokens(Settings(project="p", region="us-east1"))
        assert tokens.get() == "t"
        assert tokens.get() == "t", "a valid one is used again"
        assert tokens.get(fresh=True) == "tt"
        assert any(scope.endswith("/userinfo.email") for scope in asked)
        assert any(scope.endswith("/cloud-platform") for scope in asked)

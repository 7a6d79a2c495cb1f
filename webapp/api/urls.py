"""Addresses of the API and of the page where its tokens are made."""

from django.urls import path

import webapp.api.channels
import webapp.api.endpoints
import webapp.api.groups
import webapp.api.listings
import webapp.api.logs
import webapp.api.rates
import webapp.api.reports
import webapp.api.trash
import webapp.api.written  # noqa: F401  (operations are the API's once their modules are imported)
from webapp.api import views
from webapp.api.application import api

urlpatterns = [
    path("api/v1/", api.urls),
    path("t/<slug:team>/tokens/", views.tokens, name="tokens"),
    path("t/<slug:team>/tokens/<int:token>/revoke", views.revoke, name="revoke_token"),
]

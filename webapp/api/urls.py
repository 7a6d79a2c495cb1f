"""Addresses of the API and of the page where its tokens are made."""

from django.urls import path

from webapp.api import views
from webapp.api.endpoints import api

urlpatterns = [
    path("api/v1/", api.urls),
    path("t/<slug:team>/tokens/", views.tokens, name="tokens"),
    path("t/<slug:team>/tokens/<int:token>/revoke", views.revoke, name="revoke_token"),
]

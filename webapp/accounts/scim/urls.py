"""Addresses that the identity provider asks, below the one that is typed there: https://LAB/scim/v2."""

from django.urls import path

from webapp.accounts.scim import views
from webapp.accounts.scim.gate import for_provider

urlpatterns = [
    path("ServiceProviderConfig", for_provider(get=views.config), name="scim_config"),
    path("Users", for_provider(get=views.people, post=views.refuse_creation), name="scim_people"),
    path(
        "Users/<str:person>",
        for_provider(get=views.person, patch=views.patch, put=views.put, delete=views.delete),
        name="scim_person",
    ),
    path("Groups", for_provider(get=views.groups), name="scim_groups"),
]

"""Addresses of nightly suites, below the project."""

from django.urls import path

from webapp.nightly import change_views, views

app_name = "nightly"
urlpatterns = [
    path("", views.index, name="index"),
    path("recent", views.recent, name="recent"),
    path("changes/", change_views.index, name="changes"),
    path("changes/<int:change>/", change_views.change, name="change"),
    path("changes/<int:change>/again", change_views.confirm, name="confirm"),
    path("changes/<int:change>/bisect", change_views.bisect, name="bisect"),
    path("channels/", change_views.channel_list, name="channels"),
    path("channels/<int:channel>/", change_views.channel, name="channel"),
    path("channels/<int:channel>/secret", change_views.channel_secret, name="channel_secret"),
    path("channels/<int:channel>/test", change_views.channel_test, name="channel_test"),
    path("channels/<int:channel>/remove", change_views.channel_remove, name="channel_remove"),
    path("<int:schedule>/", views.schedule, name="schedule"),
    path("<int:schedule>/run", views.run_now, name="run_now"),
    path("<int:schedule>/pause", views.pause, name="pause"),
    path("<int:schedule>/resume", views.resume, name="resume"),
    path("<int:schedule>/remove", views.remove, name="remove"),
]

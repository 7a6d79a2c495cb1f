from django.db import migrations

#: Points by month of arrival; months that are past are packed, a row for each series (``points.py``). There
#: is no foreign key, which would be asked at every point: a trigger deletes the points of series that go.
FORWARD = """
CREATE TABLE logged_point (
    series bigint NOT NULL,
    step bigint NOT NULL,
    at double precision NOT NULL,
    value double precision NOT NULL,
    received timestamptz NOT NULL
) PARTITION BY RANGE (received);
CREATE INDEX logged_point_of_series ON logged_point (series, step);
CREATE TABLE logged_packed (
    series bigint NOT NULL,
    month date NOT NULL,
    steps bigint[] NOT NULL,
    at double precision[] NOT NULL,
    value double precision[] NOT NULL,
    PRIMARY KEY (series, month)
);
CREATE FUNCTION logged_forget_points() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM logged_point USING gone WHERE logged_point.series = gone.id;
    DELETE FROM logged_packed USING gone WHERE logged_packed.series = gone.id;
    RETURN NULL;
END $$;
CREATE TRIGGER logged_series_gone AFTER DELETE ON logged_series
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION logged_forget_points();
"""
BACKWARD = """
DROP TRIGGER logged_series_gone ON logged_series;
DROP FUNCTION logged_forget_points();
DROP TABLE logged_packed;
DROP TABLE logged_point;
"""


class Migration(migrations.Migration):
    dependencies = [("logged", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

# [runner]
from django.db import connection
from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    def setup_databases(self, **kwargs):
        databases = super().setup_databases(**kwargs)
        with connection.cursor() as cursor:
            cursor.execute('SELECT outbox_pause()')     # nothing of a test is published
        return databases
# [/runner]

# django-outbox-pattern: makes its tables by its own migrations, and fills them.
#
#   main.py write FIRST LAST    events FIRST to LAST, each in a transaction, and one that is rolled back
#   main.py relay COUNT         the next COUNT are sent, as the library's publisher marks them; "sent N" for each
import os
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"],
                           "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"], "USER": os.environ["PGUSER"]}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django_outbox_pattern"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", USE_TZ=True)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django_outbox_pattern.choices import StatusChoice  # noqa: E402
from django_outbox_pattern.models import Published  # noqa: E402


def event(n):
    Published.objects.create(destination="/exchange/shop/order.created", body={"n": n})


def write(first, last):
    call_command("migrate", verbosity=0)
    for n in range(first, last + 1):
        with transaction.atomic():
            event(n)
    try:
        with transaction.atomic():
            event(-1)
            raise KeyError
    except KeyError:
        pass


def relay(count):
    for message in Published.objects.filter(status=StatusChoice.SCHEDULE).order_by("added")[:count]:
        message.status = StatusChoice.SUCCEEDED
        message.save()
        print("sent", message.body["n"])


{"write": write, "relay": relay}[sys.argv[1]](*map(int, sys.argv[2:]))

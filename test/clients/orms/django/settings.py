# What an application's settings need for the outbox, and the least of all others.

import os

SECRET_KEY = 'tests'
USE_TZ = True
INSTALLED_APPS = ['messaging', 'shop']
DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'

DATABASES = {
    'default': {
        'ENGINE': 'django.db.backends.postgresql',
        'NAME': os.environ['PGDATABASE'],
        'OPTIONS': {
            'options': '-c search_path=public,outbox',
            'pool': {'min_size': 1, 'max_size': 4},
        },
    },
}
TEST_RUNNER = 'messaging.runner.Runner'

from alembic import op

revision = '0001'
down_revision = None
branch_labels = ('messaging',)


def upgrade():
    op.execute('CREATE SCHEMA IF NOT EXISTS outbox')
    op.execute('CREATE EXTENSION IF NOT EXISTS outbox SCHEMA outbox')


def downgrade():
    pass

import sqlalchemy as sa
from alembic import op

revision = '1001'
down_revision = None
branch_labels = ('shop',)


def upgrade():
    op.create_table('invoices', sa.Column('id', sa.BigInteger, sa.Identity(), primary_key=True))


def downgrade():
    op.drop_table('invoices')

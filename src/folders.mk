# The folders of src/ and the walls between them, for each Makefile that compiles
# files of them.  SRC is the way to src/ from there, set before.

SRC_FOLDERS = common message formats shared session launcher store broker relay preflight

# Whose headers each may include beside its own: the arrows of doc/internals.md.
# test/tools/walls-check has them, too, so that no arrow comes by accident.
SRC_USES_formats = common
SRC_USES_shared = common
SRC_USES_session = formats store shared message common
SRC_USES_launcher = shared common
SRC_USES_store = formats message common
SRC_USES_broker = formats common
SRC_USES_relay = formats store broker shared common
SRC_USES_preflight = formats broker shared common
# src/outbox.c
SRC_USES_outbox = session launcher shared common

# What others may include of a folder: its include/, or all of it if it has none.
src_public = $(or $(wildcard $(SRC)/$(1)/include),$(SRC)/$(1))

# The include path of folders.  What lies beside a source is found without it.
src_includes = $(addprefix -I,$(sort $(foreach f,\
	$(filter $(SRC_FOLDERS),$(1)) $(foreach g,$(1),$(SRC_USES_$(g))),$(call src_public,$(f)))))

SRC_FILES = $(wildcard $(SRC)/*.c $(addsuffix /*.c,$(addprefix $(SRC)/,$(SRC_FOLDERS))))
SRC_HEADERS = $(wildcard $(SRC)/*/*.h $(SRC)/*/*.def $(SRC)/*/include/*.h $(SRC)/*/include/*.def) $(SRC)/folders.mk

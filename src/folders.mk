# The folders of src/, for each Makefile that compiles files of them.  SRC is the
# way to src/ from there, set before.

SRC_FOLDERS = common shared session launcher store broker relay

# What others may include of a folder: its include/, or all of it if it has none.
src_public = $(or $(wildcard $(SRC)/$(1)/include),$(SRC)/$(1))

# The include path of a folder.
src_includes = $(addprefix -I,$(foreach f,$(SRC_FOLDERS),$(call src_public,$(f))))

SRC_FILES = $(wildcard $(SRC)/*.c $(addsuffix /*.c,$(addprefix $(SRC)/,$(SRC_FOLDERS))))
SRC_HEADERS = $(wildcard $(SRC)/*/*.h $(SRC)/*/include/*.h) $(SRC)/folders.mk

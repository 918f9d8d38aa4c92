# TensorBank for PostgreSQL.
#
#   make && make install     build with PG_CONFIG and install; needs the -dev packages of test/deps.sh and nothing else
#   make demo                install what is missing (apt, pip), build, run the main job on real data
#   make test                install what is missing, then every test; last line "N passed, N failed"
#   make lint bench          house rules as scripts; ratios against peers
#   make unit asan tsan      the engine's tests alone, plain or under sanitizers
TB_VERSION := 0.1.0
PG_CONFIG ?= pg_config
BUILD ?= build
FLAVOUR ?= release

ROOMS := base codec io dev zarr block hsi dataset stream
ENGINE_SRC := $(foreach room,$(ROOMS),$(wildcard src/$(room)/*.c))
STREAMER_SRC := $(wildcard src/streamer/*.c)
PG_SRC := $(wildcard src/pg/*.c)

# The engine: compiled without the server's include path, so that a stray include stops the build.
OUT := $(BUILD)/$(FLAVOUR)
ENGINE_OBJ := $(ENGINE_SRC:src/%.c=$(OUT)/%.o)
STREAMER_OBJ := $(STREAMER_SRC:src/%.c=$(OUT)/%.o)
ENGINE_LIBS := -lcurl -lzstd -llz4 -lz -ljson-c -lexpat -luring -lcrypto -lpthread -lm
WARN := -Wall -Wextra -Wshadow -Wno-unused-parameter -Wmissing-prototypes -Werror=implicit-function-declaration
WERROR ?=
# V=1 prints whole command lines
SAY = $(if $(V),,@echo "  CC $@"; )
FLAGS_release := -O2 -g
FLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FLAGS_tsan := -O1 -g -fsanitize=thread
ENGINE_CFLAGS := -std=gnu11 -D_GNU_SOURCE $(WARN) $(WERROR) -fPIC -fvisibility=hidden -fno-strict-aliasing \
	-ffp-contract=off $(FLAGS_$(FLAVOUR)) -Isrc

# ---- the server's module, by PGXS -----------------------------------------------------------------------
# PGXS is read only where the server's headers are: sanitizer builds of the engine need none of it.
ifeq ($(FLAVOUR),release)
ifneq ($(shell command -v $(PG_CONFIG) 2>/dev/null),)
EXTENSION := tensorbank
MODULE_big := tensorbank
OBJS := $(PG_SRC:src/%.c=$(OUT)/%.o)
DATA_built := $(BUILD)/tensorbank--$(TB_VERSION).sql
DATA := $(wildcard sql/install/tensorbank--*--*.sql)
SHLIB_LINK := $(OUT)/libtb.a $(ENGINE_LIBS) -Wl,--version-script=src/tensorbank.map -Wl,--exclude-libs,ALL
PG_CPPFLAGS := -Isrc
PG_CFLAGS := -Wno-declaration-after-statement $(WERROR)
override with_llvm := no
EXTRA_CLEAN := $(BUILD)
.DEFAULT_GOAL := all
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)

tensorbank.so: $(OUT)/libtb.a src/tensorbank.map

$(OUT)/pg/%.o: src/pg/%.c
	@mkdir -p $(@D)
	$(SAY)$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

all: $(OUT)/tensorbank_streamer
install: install-streamer
.PHONY: install-streamer
install-streamer: $(OUT)/tensorbank_streamer
	$(INSTALL_PROGRAM) $< '$(DESTDIR)$(pkglibdir)/tensorbank_streamer'
uninstall: uninstall-streamer
.PHONY: uninstall-streamer
uninstall-streamer:
	rm -f '$(DESTDIR)$(pkglibdir)/tensorbank_streamer'
endif
endif
endif

$(BUILD)/tensorbank--$(TB_VERSION).sql: $(sort $(wildcard sql/install/[0-9]*.sql))
	@mkdir -p $(@D)
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION tensorbank" to load this file. \quit'; cat $^; } > $@

# ---- the engine and the streamer ---------------------------------------------------------------------------
$(OUT)/libtb.a: $(ENGINE_OBJ)
	@rm -f $@
	@$(AR) rcs $@ $^

# Written out, so that the rule does not depend on PGXS's variables.
$(ENGINE_OBJ) $(STREAMER_OBJ): $(OUT)/%.o: src/%.c
	@mkdir -p $(@D)
	$(SAY)$(CC) $(ENGINE_CFLAGS) -MMD -MP -c -o $@ $<

$(OUT)/tensorbank_streamer: $(STREAMER_OBJ) $(OUT)/libtb.a
	$(SAY)$(CC) $(ENGINE_CFLAGS) -o $@ $(STREAMER_OBJ) $(OUT)/libtb.a $(ENGINE_LIBS)

.PHONY: streamer engine
streamer: $(OUT)/tensorbank_streamer
engine: $(OUT)/libtb.a

# ---- unit tests --------------------------------------------------------------------------------------------
UNIT_SRC := $(wildcard test/unit/test_*.c)
UNIT_HELP := $(filter-out $(UNIT_SRC),$(wildcard test/unit/*.c))
UNIT_BIN := $(UNIT_SRC:test/unit/%.c=$(OUT)/unit/%)
FUZZ_SRC := $(wildcard test/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:test/fuzz/%.c=$(OUT)/fuzz/%)

UNIT_HELP_OBJ := $(UNIT_HELP:test/unit/%.c=$(OUT)/unit/help/%.o)

$(UNIT_HELP_OBJ): $(OUT)/unit/help/%.o: test/unit/%.c $(wildcard test/unit/*.h) $(wildcard src/*/*.h)
	@mkdir -p $(@D)
	$(SAY)$(CC) $(ENGINE_CFLAGS) -Wno-missing-prototypes -Itest/unit -c -o $@ $<

$(UNIT_BIN): $(OUT)/unit/%: test/unit/%.c $(UNIT_HELP_OBJ) $(wildcard test/unit/*.h) $(OUT)/libtb.a
	@mkdir -p $(@D)
	$(SAY)$(CC) $(ENGINE_CFLAGS) -Wno-missing-prototypes -Itest/unit -o $@ $< $(UNIT_HELP_OBJ) $(OUT)/libtb.a -lcmocka $(ENGINE_LIBS)

$(FUZZ_BIN): $(OUT)/fuzz/%: test/fuzz/%.c test/fuzz/replay.c $(OUT)/libtb.a
	@mkdir -p $(@D)
	$(SAY)$(CC) $(ENGINE_CFLAGS) -Wno-missing-prototypes -o $@ $< test/fuzz/replay.c $(OUT)/libtb.a $(ENGINE_LIBS)

.PHONY: unit-bins unit asan tsan fuzz-regress
unit-bins: $(UNIT_BIN) $(FUZZ_BIN) $(OUT)/tensorbank_streamer
unit: unit-bins
	@test/unit/run.sh $(OUT)
asan:
	@$(MAKE) --no-print-directory FLAVOUR=asan unit
tsan:
	@$(MAKE) --no-print-directory FLAVOUR=tsan unit
fuzz-regress: $(FUZZ_BIN)
	@test/fuzz/run.sh $(OUT)

# ---- for people ---------------------------------------------------------------------------------------------

.PHONY: deps demo test lint bench
deps:
	@test/deps.sh
demo:
	@test/deps.sh demo
	@test/demo/run.sh
test:
	@test/deps.sh test
	@test/run.sh
lint:
	@test/lint/run.sh
bench:
	@test/deps.sh bench
	@test/bench/run.sh

-include $(ENGINE_OBJ:.o=.d) $(STREAMER_OBJ:.o=.d) $(PG_SRC:src/%.c=$(OUT)/%.d)

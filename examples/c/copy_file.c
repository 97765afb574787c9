/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy a file through the engine, with options read by doca_argp.
 *
 * copy_file -i SRC -o DST [-bs BYTES] [-p PCI] [--verbose]
 *
 * Prints, with --verbose: N copies
 */
#include "common.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_argp.h>

struct options {
	char *in;
	char *out;
	char *pci;
	int block;
	bool verbose;
};

/* The value lives only as long as the callback. */
static doca_error_t
keep(char **where, const char *value)
{
	*where = strdup(value);
	return *where != NULL ? DOCA_SUCCESS : DOCA_ERROR_NO_MEMORY;
}

static doca_error_t
on_in(void *value, void *options)
{
	return keep(&((struct options *)options)->in, value);
}

static doca_error_t
on_out(void *value, void *options)
{
	return keep(&((struct options *)options)->out, value);
}

static doca_error_t
on_pci(void *value, void *options)
{
	return keep(&((struct options *)options)->pci, value);
}

static doca_error_t
on_block(void *value, void *options)
{
	((struct options *)options)->block = *(int *)value;
	return *(int *)value > 0 ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

static doca_error_t
on_verbose(void *value, void *options)
{
	((struct options *)options)->verbose = *(bool *)value;
	return DOCA_SUCCESS;
}

static void
add_option(const char *short_name, const char *long_name, const char *description,
	   enum doca_argp_type type, doca_argp_param_cb_t callback, bool mandatory)
{
	struct doca_argp_param *param;

	NEED(doca_argp_param_create(&param));
	if (short_name != NULL) {
		doca_argp_param_set_short_name(param, short_name);
	}
	doca_argp_param_set_long_name(param, long_name);
	doca_argp_param_set_description(param, description);
	doca_argp_param_set_type(param, type);
	doca_argp_param_set_callback(param, callback);
	if (mandatory) {
		doca_argp_param_set_mandatory(param);
	}
	NEED(doca_argp_register_param(param));
}

/* Read a whole file; the buffer has room for a copy behind it. */
static unsigned char *
read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *memory = NULL;
	long end = -1;

	if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
		end = ftell(file);
	}
	if (end > 0 && fseek(file, 0, SEEK_SET) == 0) {
		memory = malloc(2 * (size_t)end);
	}
	if (memory == NULL || fread(memory, 1, (size_t)end, file) != (size_t)end) {
		fprintf(stderr, "%s: cannot be read, or is empty\n", path);
		exit(EXIT_FAILURE);
	}
	fclose(file);
	*size = (size_t)end;
	return memory;
}

int
main(int argc, char **argv)
{
	struct options options = {.block = 64 << 10};
	struct engine engine;
	unsigned char *memory;
	size_t copies = 0;
	size_t size;
	FILE *file;

	NEED(doca_argp_init("copy_file", &options));
	add_option("i", "in", "file to read", DOCA_ARGP_TYPE_STRING, on_in, true);
	add_option("o", "out", "file to write", DOCA_ARGP_TYPE_STRING, on_out, true);
	add_option("p", "pci-addr", "device", DOCA_ARGP_TYPE_STRING, on_pci, false);
	add_option("bs", "block-size", "bytes per copy", DOCA_ARGP_TYPE_INT, on_block, false);
	add_option(NULL, "verbose", "say what was done", DOCA_ARGP_TYPE_BOOLEAN, on_verbose, false);
	NEED(doca_argp_start(argc, argv));

	memory = read_file(options.in, &size);
	engine_open(&engine, options.pci, memory, 2 * size, 8);
	for (size_t at = 0, len; at < size; at += len, copies++) {
		len = size - at < (size_t)options.block ? size - at : (size_t)options.block;
		if (len > engine.max_copy) {
			len = engine.max_copy;
		}
		while (engine.in_flight == 8) {
			doca_pe_progress(engine.pe);
		}
		engine_copy(&engine, memory + at, memory + size + at, len);
	}
	while (engine.in_flight != 0) {
		doca_pe_progress(engine.pe);
	}
	engine_close(&engine);

	file = fopen(options.out, "wb");
	if (file == NULL || fwrite(memory + size, 1, size, file) != size || fclose(file) != 0) {
		perror(options.out);
		return EXIT_FAILURE;
	}
	if (options.verbose) {
		printf("%zu copies\n", copies);
	}
	free(memory);
	free(options.in);
	free(options.out);
	free(options.pci);
	NEED(doca_argp_destroy());
	return engine.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

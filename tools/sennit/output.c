/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"

#define SCHEMA 1
#define WIDTH  80

struct output output = { .command = "" };

/* Characters of a progress line that is there now. */
static int progress_width;

json_t *output_object(void)
{
	return json_pack("{s:i, s:s}", "schema", SCHEMA, "command", output.command);
}

void output_json(json_t *object)
{
	if (!object || json_dumpf(object, stdout, JSON_COMPACT) ||
	    putchar('\n') == EOF || fflush(stdout))
		output_note("a result could not be written: %s",
			    object ? strerror(errno) : "out of memory");
	json_decref(object);
}

void output_text(const char *format, ...)
{
	va_list args;

	if (output.json)
		return;
	output_progress_end();
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
}

/* Paths and what peers say may hold anything; a terminal is to do nothing about it. */
static void make_plain(char *text, bool ascii)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++)
		if ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 127 ||
		    (ascii && *c > 127))
			*c = '?';
}

json_t *output_string(const char *text)
{
	json_t *string = json_string(text);
	char *plain;

	if (string)
		return string;
	plain = strdup(text);
	if (!plain)
		return NULL;
	make_plain(plain, true);
	string = json_string(plain);
	free(plain);
	return string;
}

void output_fill(const char *text, size_t indent)
{
	size_t column = indent;

	while (*text) {
		size_t length = strcspn(text, " ");

		if (column > indent && column + 1 + length > WIDTH) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		}
		printf("%s%.*s", column > indent ? " " : "", (int)length, text);
		column += length + (column > indent);
		text += length;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void say(const char *format, va_list args)
{
	char *text;

	output_progress_end();
	fflush(stdout);
	if (vasprintf(&text, format, args) < 0)
		return;
	make_plain(text, false);
	fprintf(stderr, "sennit%s%s: %s\n", *output.command ? " " : "", output.command,
		text);
	free(text);
}

static void add_error(int status, const char *next, const char *format, va_list args)
{
	json_t *object = output_object();
	char *text = NULL;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	json_object_set_new(object, "status", json_integer(status));
	json_object_set_new(object, "error", output_string(text ? text : format));
	if (next)
		json_object_set_new(object, "next", json_string(next));
	output_json(object);
	free(text);
}

int output_failed(const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	if (next)
		fprintf(stderr, "  %s\n", next);
	if (output.json) {
		va_start(args, format);
		add_error(STATUS_FAILED, next, format, args);
		va_end(args);
	}
	return STATUS_FAILED;
}

int output_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	fprintf(stderr, "  for help: sennit %s%s--help\n", output.command,
		*output.command ? " " : "");
	if (output.json) {
		va_start(args, format);
		add_error(STATUS_USAGE, NULL, format, args);
		va_end(args);
	}
	return STATUS_USAGE;
}

void output_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

/*
 * Progress
 */

bool output_shows_progress(void)
{
	return isatty(STDERR_FILENO);
}

static int terminal_width(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80
								       : size.ws_col;
}

void output_progress(const char *format, ...)
{
	int room = terminal_width() - 1;
	char line[512];
	va_list args;
	int length;

	if (!output_shows_progress())
		return;
	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (length >= (int)sizeof(line))
		length = sizeof(line) - 1;
	if (length > room)
		length = room;
	make_plain(line, false);
	fprintf(stderr, "\r%.*s%*s", length, line,
		progress_width > length ? progress_width - length : 0, "");
	fflush(stderr);
	progress_width = length;
}

void output_progress_end(void)
{
	if (progress_width)
		fprintf(stderr, "\r%*s\r", progress_width, "");
	progress_width = 0;
}

int output_end(int status)
{
	output_progress_end();
	if (fflush(stdout) || ferror(stdout)) {
		output_note("results could not be written to stdout: %s",
			    strerror(errno));
		return status ? status : STATUS_FAILED;
	}
	return status;
}

/*
 * Quantities
 */

const char *output_bytes(char *buffer, uint64_t bytes)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB",
					    "TiB",   "PiB", "EiB" };
	double value = (double)bytes;
	unsigned i = 0;

	for (; value >= 1024 && i < sizeof(unit) / sizeof(*unit) - 1; i++)
		value /= 1024;
	snprintf(buffer, OUTPUT_QUANTITY, i && fmod(value, 1) ? "%.1f %s" : "%.0f %s",
		 value, unit[i]);
	return buffer;
}

const char *output_rate(char *buffer, double bytes_per_second)
{
	static const char *const unit[] = { "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s" };
	double value = bytes_per_second * 8;
	unsigned i = 0;

	for (; value >= 1000 && i < sizeof(unit) / sizeof(*unit) - 1; i++)
		value /= 1000;
	snprintf(buffer, OUTPUT_QUANTITY, "%.*f %s", value < 10 ? 2 : 1, value,
		 unit[i]);
	return buffer;
}

const char *output_duration(char *buffer, double seconds)
{
	uint64_t whole = (uint64_t)seconds;

	if (seconds < 1e-3)
		snprintf(buffer, OUTPUT_QUANTITY, "%.1f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(buffer, OUTPUT_QUANTITY, "%.1f ms", seconds * 1e3);
	else if (seconds < 60)
		snprintf(buffer, OUTPUT_QUANTITY, "%.1f s", seconds);
	else if (whole < 3600)
		snprintf(buffer, OUTPUT_QUANTITY, "%u min %u s", (unsigned)(whole / 60),
			 (unsigned)(whole % 60));
	else
		snprintf(buffer, OUTPUT_QUANTITY, "%u h %u min",
			 (unsigned)(whole / 3600), (unsigned)(whole % 3600 / 60));
	return buffer;
}

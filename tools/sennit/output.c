/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "command.h"

#define SCHEMA 1
#define WIDTH  80

struct output output = { .command = "" };

/* Characters of the progress line on the terminal. */
static volatile sig_atomic_t progress_width;

/* The errno of the first failed write to stdout. */
static int write_error;

json_t *output_object(void)
{
	return json_pack("{s:i, s:s}", "schema", SCHEMA, "command", output.command);
}

void output_flush(void)
{
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !write_error)
		write_error = errno ? errno : EIO;
}

void output_json(json_t *object)
{
	if (!object)
		output_note("cannot write a result: out of memory");
	else if (!json_dumpf(object, stdout, JSON_COMPACT))
		putchar('\n');
	output_flush();
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

/* Paths and texts of peers may contain anything; they must not control a terminal, or
 * make one line look like two. Characters that the locale lacks become "?". */
static void make_plain(char *text)
{
	mbstate_t state = { 0 };
	char *to = text;
	wchar_t letter;

	for (size_t left = strlen(text); left;) {
		size_t length = mbrtowc(&letter, text, left, &state);

		if (length == (size_t)-1 || length == (size_t)-2) {
			memset(&state, 0, sizeof(state));
			length = 1;
			letter = 0;
		}
		if (iswprint((wint_t)letter)) {
			memmove(to, text, length);
			to += length;
		} else {
			*to++ = '?';
		}
		text += length;
		left -= length;
	}
	*to = '\0';
}

static void make_ascii(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++)
		if (*c < ' ' || *c > 126)
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
	make_ascii(plain);
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

static void print_message(const char *format, va_list args)
{
	char *text;

	output_progress_end();
	output_flush();
	if (vasprintf(&text, format, args) < 0)
		return;
	make_plain(text);
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

static int fail_with_status(int status, const char *next, const char *format,
			    va_list args)
{
	va_list again;

	va_copy(again, args);
	print_message(format, args);
	if (next)
		fprintf(stderr, "  %s\n", next);
	if (output.json)
		add_error(status, next, format, again);
	va_end(again);
	return status;
}

int output_failed(const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_with_status(STATUS_FAILED, next, format, args);
	va_end(args);
	return STATUS_FAILED;
}

int output_failed_as(int status, const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_with_status(status, next, format, args);
	va_end(args);
	return status;
}

int output_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_message(format, args);
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
	print_message(format, args);
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

/* An interrupted tool leaves an empty line behind. */
static void clear_progress_on_signal(int number)
{
	static const char blank[] = "        ";
	ssize_t written = write(STDERR_FILENO, "\r", 1);

	for (int left = progress_width; written > 0 && left > 0; left -= 8)
		written = write(STDERR_FILENO, blank, left < 8 ? (size_t)left : 8);
	if (written > 0)
		written = write(STDERR_FILENO, "\r", 1);
	raise(number); /* with the default action now */
}

static void catch_progress_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = clear_progress_on_signal,
				    .sa_flags = SA_RESETHAND | SA_NODEFER };
	static bool caught;

	for (size_t i = 0; !caught && i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct sigaction before;

		if (!sigaction(numbers[i], NULL, &before) &&
		    before.sa_handler == SIG_DFL)
			sigaction(numbers[i], &action, NULL);
	}
	caught = true;
}

/* The first characters that fit so many bytes. */
static int bytes_that_fit(const char *text, int room)
{
	int length = (int)strlen(text);

	if (length <= room)
		return length;
	while (room > 0 && ((unsigned char)text[room] & 0xc0) == 0x80)
		room--;
	return room;
}

void output_progress(const char *format, ...)
{
	int room = terminal_width() - 1, length, width = progress_width;
	char line[512];
	va_list args;

	if (!output_shows_progress())
		return;
	catch_progress_signals();
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	make_plain(line);
	length = bytes_that_fit(line, room);
	/* Set before the line is written: a signal may come at any time. */
	progress_width = length > width ? length : width;
	fprintf(stderr, "\r%.*s%*s", length, line, width > length ? width - length : 0,
		"");
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
	output_flush();
	if (!write_error)
		return status;
	output_note("cannot write results to stdout: %s", strerror(write_error));
	return status ? status : STATUS_FAILED;
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

/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_OUTPUT_H
#define SENNIT_TOOL_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Results go to stdout, as text or, with --json, as one object per line; all else goes to
 * stderr. Progress is shown only where stderr is a terminal, and gone when it is over.
 */

struct output {
	const char
		*command; /* whose turn it is, for messages; "" before there is one */
	bool json;	  /* --json */
};

extern struct output output;

/* An object with "schema" and "command" in it, for the subcommand to fill. */
json_t *output_object(void);

/* Prints an object as a line and frees it. Never fails with a valid object: numbers that
 * JSON does not have are refused when they are made. NULL: out of memory. */
void output_json(json_t *object);

/* Lets what was printed so far be seen. Whether it could be written is remembered. */
void output_flush(void);

/* A string that may have come from anywhere, such as a path: what is not UTF-8 becomes "?". */
json_t *output_string(const char *text);

/* A line of a result, unless --json: then nothing. */
__attribute__((format(printf, 1, 2))) void output_text(const char *format, ...);

/* Words to stdout, broken at 80 columns. The first line has `indent` columns already, the
 * others get as many blanks. */
void output_fill(const char *text, size_t indent);

/*
 * What went wrong, and what to do next (NULL: nothing can be said). To stderr, as
 * "sennit ping: ...", and with --json to stdout as well, as "error" and "next" of an object.
 * Returns STATUS_FAILED.
 */
__attribute__((format(printf, 2, 3))) int output_failed(const char *next,
							const char *format, ...);

/* The same with another status, which is returned. */
__attribute__((format(printf, 3, 4))) int output_failed_as(int status, const char *next,
							   const char *format, ...);

/* Wrong usage: says so and names the help. Returns STATUS_USAGE. */
__attribute__((format(printf, 1, 2))) int output_usage(const char *format, ...);

/* Something that people should know and that is no result: to stderr. */
__attribute__((format(printf, 1, 2))) void output_note(const char *format, ...);

/* A line that is overwritten by the next, on a terminal only. It is cut to its width. */
__attribute__((format(printf, 1, 2))) void output_progress(const char *format, ...);
bool output_shows_progress(void);
void output_progress_end(void);

/* To be called last: status, or STATUS_FAILED if stdout could not be written. */
int output_end(int status);

/* "1.5 GiB", "12.3 Gb/s" (10^9 bit), "2 min 5 s"; into a buffer of OUTPUT_QUANTITY. */
#define OUTPUT_QUANTITY 32
const char *output_bytes(char *buffer, uint64_t bytes);
const char *output_rate(char *buffer, double bytes_per_second);
const char *output_duration(char *buffer, double seconds);

#endif

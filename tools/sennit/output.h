/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_OUTPUT_H
#define SENNIT_TOOL_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Results go to stdout, as text or, with --json, as one object per line; everything
 * else goes to stderr. Progress is shown only if stderr is a terminal, and erased at
 * the end.
 */

struct output {
	const char *command; /* the subcommand, for messages; "" before it is known */
	bool json;	     /* --json */
};

extern struct output output;

/* An object with "schema" and "command" in it, for the subcommand to fill. */
json_t *output_object(void);

/* Prints an object as a line and frees it. Never fails with a valid object: numbers
 * that JSON cannot represent are refused when they are made. NULL: out of memory. */
void output_json(json_t *object);

/* Flushes what was printed. Write errors are remembered. */
void output_flush(void);

/* A string of any origin, such as a path: bytes that are not UTF-8 become "?". */
json_t *output_string(const char *text);

/* A line of a result; nothing with --json. */
__attribute__((format(printf, 1, 2))) void output_text(const char *format, ...);

/* Words to stdout, wrapped at 80 columns. The first line has `indent` columns already,
 * later lines get as many blanks. */
void output_fill(const char *text, size_t indent);

/*
 * Reports an error, and what to do next (NULL: not known). To stderr, as "sennit ping:
 * ...", and with --json to stdout as well, as "error" and "next" of an object. Returns
 * STATUS_FAILED.
 */
__attribute__((format(printf, 2, 3))) int output_failed(const char *next,
							const char *format, ...);

/* The same with another status, which is returned. */
__attribute__((format(printf, 3, 4))) int output_failed_as(int status, const char *next,
							   const char *format, ...);

/* Wrong usage: reports it and names the help. Returns STATUS_USAGE. */
__attribute__((format(printf, 1, 2))) int output_usage(const char *format, ...);

/* A note for the user that is not a result: to stderr. */
__attribute__((format(printf, 1, 2))) void output_note(const char *format, ...);

/* A line that the next one overwrites, on a terminal only. It is cut to the terminal's
 * width. */
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

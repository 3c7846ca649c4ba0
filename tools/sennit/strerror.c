/* SPDX-License-Identifier: MIT */
/* sennit strerror: an errno by number or by name, and what it means in sennit. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sennit/cq.h>

#include "command.h"
#include "commands.h"

#define ERRNO_MAX 4095

/* What a number means in sennit, beyond its name. */
static const struct {
	int number;
	const char *meaning;
} meanings[] = {
	{ EINVAL, "an option, setting or argument is malformed or out of range" },
	{ E2BIG,
	  "a structure is from a newer header and has fields set that this library "
	  "does not know; or there are more devices than a context holds" },
	{ ENODEV, "no such RDMA device, or none at all: `sennit info` lists devices, "
		  "SENNIT_DEVICES and SENNIT_SOFT select them" },
	{ ENETDOWN, "the selected port is not active: check its cable, `ip link` and "
		    "`sennit info`" },
	{ EEXIST, "a device is selected or adopted twice" },
	{ EADDRNOTAVAIL,
	  "a port has no usable GID, or an address does not belong to this "
	  "host: give the network interface an address, or change SENNIT_GID "
	  "or SENNIT_SOFT_ADDRESSES" },
	{ EADDRINUSE, "the port is in use by another program, another context, or the "
		      "kernel's rxe (UDP 4791)" },
	{ EOPNOTSUPP, "not supported by the device or by this build of the library" },
	{ ENOMEM, "out of memory, or the limit of locked memory is too low: check "
		  "`ulimit -l`" },
	{ EBUSY, "the object still has children or users, or the call is not allowed "
		 "inside a callback" },
	{ ECHILD, "the process was forked: what belongs to the parent cannot be used" },
	{ ENETUNREACH,
	  "no device of this host has a route to the address: `sennit info` "
	  "shows addresses" },
	{ ECONNREFUSED,
	  "no listener at the address, or the peer rejected the connection" },
	{ ETIMEDOUT, "the peer, or the network in between, did not answer in time" },
	{ ECONNRESET, "the peer disappeared without closing the connection" },
	{ ECONNABORTED, "the peer aborted the connection" },
	{ ECANCELED, "cancelled by this end" },
	{ ESTALE, "the same peer connected again, which replaced this connection" },
	{ EACCES, "the peer has no secret, or another one" },
	{ EPROTO, "the peer violated the protocol; compare the versions of both ends" },
	{ EIO, "a device failed" },
};

static const char *meaning_of(int number)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
		if (meanings[i].number == number)
			return meanings[i].meaning;
	return NULL;
}

static int by_name(const char *name)
{
	for (int i = 1; i <= ERRNO_MAX; i++) {
		const char *other = strerrorname_np(i);

		if (other && !strcasecmp(other, name))
			return i;
	}
	/* Aliases of the names above. */
	if (!strcasecmp(name, "EWOULDBLOCK"))
		return EWOULDBLOCK;
	if (!strcasecmp(name, "ENOTSUP"))
		return ENOTSUP;
	return 0;
}

static const char *errno_name(const void *arg, size_t i)
{
	const char *name = i + 1 <= ERRNO_MAX ? strerrorname_np((int)i + 1) : NULL;

	(void)arg;
	/* Unused numbers are not the end. */
	return !name && i < 133 ? "-" : name;
}

static int number_of(const char *text)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (*end || end == text)
		return by_name(text);
	number = number < 0 ? -number : number;
	return number <= ERRNO_MAX && strerrorname_np((int)number) ? (int)number : 0;
}

/*
 * Statuses of completions
 */

#define STATUSES (SNT_WC_GENERAL_ERR + 1)

/* "RETRY_EXC_ERR", with or without the prefixes of this library or of verbs. -1:
 * none. */
static int status_of(const char *text)
{
	static const char *const prefix[] = { "SNT_WC_", "IBV_WC_" };

	for (size_t i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
		if (!strncasecmp(text, prefix[i], strlen(prefix[i])))
			text += strlen(prefix[i]);
	if (!strcasecmp(text, "WR_FLUSH_ERR"))
		text = "FLUSHED";
	for (unsigned i = 0; i < STATUSES; i++)
		if (snt_status_name(i) && !strcasecmp(snt_status_name(i), text))
			return (int)i;
	return -1;
}

static int status_by_number(const char *text)
{
	char *end;
	long number = strtol(text, &end, 10);
	bool known = !*end && end != text && number >= 0 && number < STATUSES &&
		     snt_status_name((unsigned)number);

	return known ? (int)number : -1;
}

static int explain_status(unsigned status)
{
	const char *name = snt_status_name(status), *text = snt_status_text(status);
	const char *help = snt_status_help(status);
	json_t *object;

	output_text("SNT_WC_%s (status %u): %s\n  in sennit: %s\n", name, status, text,
		    help);
	if (!output.json)
		return STATUS_OK;
	object = output_object();
	json_object_update_new(object,
			       json_pack("{s:i, s:s+, s:s, s:s}", "completion_status",
					 (int)status, "name", "SNT_WC_", name, "text",
					 text, "meaning", help));
	output_json(object);
	return STATUS_OK;
}

/*
 * The subcommand
 */

struct strerror_opts {
	bool status;
};

static int explain_text(const struct strerror_opts *opts, const char *text)
{
	int status = status_of(text);
	int number = number_of(text);
	const char *meaning = meaning_of(number);
	json_t *object;

	if (opts->status && status < 0)
		status = status_by_number(text);
	if (status >= 0)
		return explain_status((unsigned)status);
	if (opts->status)
		return output_usage("there is no status \"%s\"", text);
	if (!number) {
		const char *nearest = options_nearest(text, errno_name, NULL);

		return output_usage("there is no errno \"%s\"%s%s%s", text,
				    nearest ? "; did you mean " : "",
				    nearest ? nearest : "", nearest ? "?" : "");
	}
	output_text("%s (%d): %s\n", strerrorname_np(number), number, strerror(number));
	if (meaning)
		output_text("  in sennit: %s\n", meaning);
	if (!output.json)
		return STATUS_OK;
	object = output_object();
	json_object_set_new(object, "number", json_integer(number));
	json_object_set_new(object, "name", json_string(strerrorname_np(number)));
	json_object_set_new(object, "text", json_string(strerror(number)));
	if (meaning)
		json_object_set_new(object, "meaning", json_string(meaning));
	output_json(object);
	return STATUS_OK;
}

static int strerror_run(const void *opts, int count, char **argument)
{
	int status = STATUS_OK;

	for (int i = 0; i < count && !status; i++)
		status = explain_text(opts, argument[i]);
	return status;
}

const struct command strerror_command = {
	.name = "strerror",
	.summary = "what an errno, or the status of a completion, means in sennit",
	.arguments = "NUMBER|NAME...",
	.description =
		"Calls of the library return negative errnos; with or without the sign, "
		"and by name, this explains them. The sentence that snt_err_text() has "
		"after a failure says more.\n\n"
		"Completions have a status, which is known by name as well, in sennit's "
		"words or those of verbs, and by number with --status.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .name = "status",
			  .offset = offsetof(struct strerror_opts, status),
			  .help = "numbers are statuses of completions, not errnos" },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit strerror -110", "by number, as calls return it" },
			{ "sennit strerror ENETDOWN EACCES", "by name" },
			{ "sennit strerror IBV_WC_RETRY_EXC_ERR",
			  "what a completion says; --status 12 is the same" },
			{ 0 },
		},
	.argument_min = 1,
	.argument_max = -1,
	.ignores_signs = true,
	.opts_size = sizeof(struct strerror_opts),
	.run = strerror_run,
};

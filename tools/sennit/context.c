/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sennit/err.h>

#include "command.h"

const struct option_entry context_options[] = {
	{ .kind = OPTION_GROUP,
	  .help = "Devices (`sennit info` lists them; environment variables set the "
		  "same)" },
	{ .kind = OPTION_TEXT,
	  .letter = 'd',
	  .name = "devices",
	  .argument = "LIST",
	  .offset = offsetof(struct context_opts, devices),
	  .values = "@infiniband",
	  .help = "devices to use, as in SENNIT_DEVICES: mlx5_0,mlx5_1:2,^rxe" },
	{ .kind = OPTION_CHOICE,
	  .name = "soft",
	  .argument = "default|auto|never|only",
	  .offset = offsetof(struct context_opts, soft),
	  .help = "whether to use soft devices, as in SENNIT_SOFT: auto (if there are "
		  "no others), never, only; default: the value of SENNIT_SOFT" },
	{ .kind = OPTION_TEXT,
	  .name = "soft-addresses",
	  .argument = "LIST",
	  .offset = offsetof(struct context_opts, soft_addresses),
	  .values = "@net",
	  .help = "addresses or interfaces of soft devices, as in "
		  "SENNIT_SOFT_ADDRESSES: eth0,10.0.0.1" },
	{ .kind = OPTION_TEXT,
	  .name = "gid",
	  .argument = "INDEX",
	  .offset = offsetof(struct context_opts, gid),
	  .help = "GID table index on every port, as in SENNIT_GID" },
	{ 0 },
};

static bool is_hushed;

void context_hush(void)
{
	is_hushed = true;
}

static void log_line(void *arg, enum snt_log_level level, const char *text)
{
	static const char *const name[] = { "", "error", "warning", "info", "debug" };

	(void)arg;
	if (!is_hushed || level == SNT_LOG_ERROR)
		output_note("%s: %s", name[level], text);
}

const char *context_remedy(int error)
{
	switch (-error) {
	case ENODEV:
		return "`sennit info` lists the devices of this host; SENNIT_SOFT=only uses "
		       "soft ones instead";
	case ENETDOWN:
		return "check the port's cable and `ip link`, or choose other devices with "
		       "--devices";
	case EADDRINUSE:
		return "choose another port with --port, or other addresses with "
		       "--soft-addresses";
	case EADDRNOTAVAIL:
		return "`sennit info` shows the GIDs of every port, `ip address` the addresses "
		       "of this host";
	case EMFILE:
		return "raise the limit of open files; `ulimit -n` shows it";
	case ENOMEM:
		return "raise the limit of locked memory; `ulimit -l` shows it in KiB";
	case EPERM:
	case EACCES:
		return "the devices in /dev/infiniband must be readable and writable";
	default:
		return NULL;
	}
}

/* Error texts of the library name its structures' fields; here they become options. */
static void say_options(const char *text, char *to, size_t size)
{
	static const char prefix[] = "snt_ctx_opts.";
	const size_t length = sizeof(prefix) - 1;
	size_t used = 0;

	while (*text && used + 3 < size) {
		if (strncmp(text, prefix, length)) {
			to[used++] = *text++;
			continue;
		}
		text += length;
		to[used++] = '-';
		to[used++] = '-';
		for (;
		     (islower((unsigned char)*text) || *text == '_') && used + 3 < size;
		     text++)
			to[used++] = *text == '_' ? '-' : *text;
	}
	to[used] = '\0';
}

static int try_ctx(const struct context_opts *opts, struct snt_ctx **ctx_out,
		   char why[CONTEXT_TEXT])
{
	struct snt_ctx_opts ctx_opts = {
		.size = sizeof(ctx_opts),
		.devices = opts->devices,
		.soft = (enum snt_soft)opts->soft,
		.soft_addresses = opts->soft_addresses,
		.gid = opts->gid,
		.log = log_line,
	};
	int ret = snt_ctx_create(&ctx_opts, ctx_out);
	size_t used;

	if (!ret)
		return 0;
	used = (size_t)snprintf(why, CONTEXT_TEXT, "no devices: ");
	say_options(snt_err_text(), why + used, CONTEXT_TEXT - used);
	return ret;
}

int context_try(const struct context_opts *opts, struct snt_loop **loop_out,
		char why[CONTEXT_TEXT])
{
	struct snt_ctx *ctx;
	int ret = try_ctx(opts, &ctx, why);

	if (ret)
		return ret;
	ret = snt_loop_create(ctx, NULL, loop_out);
	if (!ret)
		return 0;
	snprintf(why, CONTEXT_TEXT, "cannot open a loop: %s", snt_err_text());
	snt_ctx_destroy(ctx);
	return ret;
}

/* A context has no port of its own: the address of a soft device is in use. */
static const char *open_remedy(int error)
{
	return error == -EADDRINUSE ? "choose other addresses with --soft-addresses"
				    : context_remedy(error);
}

int context_open(const struct context_opts *opts, struct snt_ctx **ctx_out)
{
	char why[CONTEXT_TEXT];
	int ret = try_ctx(opts, ctx_out, why);

	return ret ? output_failed(open_remedy(ret), "%s", why) : STATUS_OK;
}

int context_open_loop(const struct context_opts *opts, struct snt_loop **loop_out)
{
	char why[CONTEXT_TEXT];
	int ret = context_try(opts, loop_out, why);

	return ret ? output_failed(open_remedy(ret), "%s", why) : STATUS_OK;
}

void context_close_loop(struct snt_loop *loop)
{
	struct snt_ctx *ctx = snt_loop_ctx(loop);

	snt_loop_destroy(loop);
	snt_ctx_destroy(ctx);
}

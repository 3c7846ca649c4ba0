/* SPDX-License-Identifier: MIT */
/*
 * Which devices a context gets. The rule behind all of it: what the user named is
 * present or is an error; what merely matched may be left out, which the log then
 * reports.
 */
#include "dev/open.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/err.h"
#include "util/opts.h"

struct search {
	struct snt_ctx *ctx;
	const struct snt__provider *provider;
	struct snt__listing listing;
	struct snt__select select;
};

static int check_new(const struct snt_ctx *ctx, const struct snt_device *device)
{
	char text[SNT__DEVICE_TEXT];

	snt__device_text(device, text);
	if (ctx->device_count == SNT_DEVICES_MAX)
		return snt__fail(
			E2BIG,
			"%s does not fit into the context, which holds %d devices; select "
			"fewer",
			text, SNT_DEVICES_MAX);
	for (unsigned i = 0; i < ctx->device_count; i++) {
		const struct snt_device *other = ctx->device[i];

		if (other->number == device->number &&
		    (other->context == device->context ||
		     !strcmp(other->name, device->name)))
			return snt__fail(EEXIST,
					 "%s is in the context already, as %s; adopt "
					 "or select it once",
					 text, other->name);
	}
	return 0;
}

static int add_opened_device(struct snt_ctx *ctx, struct snt_device *device)
{
	int ret = check_new(ctx, device);

	if (ret) {
		if (device->provider)
			device->control.dealloc_pd(device->pd);
		snt__device_close(device);
		return ret;
	}
	device->index = ctx->device_count;
	ctx->device[ctx->device_count++] = device;
	return 0;
}

/* May a port with this failure be left out, since it was not named? */
static bool may_leave_out(const struct search *search, const struct snt__entry *entry,
			  int ret)
{
	bool gid_was_named = strcmp(search->ctx->gid_wish.text, "auto");

	if (snt__select_is_strict(entry))
		return false;
	return ret == -ENETDOWN || ret == -EOPNOTSUPP ||
	       (ret == -EADDRNOTAVAIL && !gid_was_named);
}

static void leave_out(const struct search *search, struct snt__entry *entry, int ret)
{
	entry->left_out = ret;
	snprintf(entry->left_out_text, sizeof(entry->left_out_text), "%s",
		 snt_err_text());
	snt__log(&search->ctx->log, SNT_LOG_INFO, "left out: %s", snt_err_text());
}

static int open_device_port(struct search *search, unsigned position, uint8_t number)
{
	const char *name = search->provider->name(&search->listing, position);
	struct snt_device *device;
	struct snt__entry *entry;
	int ret;

	ret = snt__select_port(&search->select, name, number, &entry);
	if (ret <= 0)
		return ret;
	ret = snt__device_open(search->provider, &search->listing, position, number,
			       search->ctx->gid_wish, &device);
	if (ret && may_leave_out(search, entry, ret)) {
		leave_out(search, entry, ret);
		return 0;
	}
	if (ret)
		return ret;
	entry->ports_taken++;
	return add_opened_device(search->ctx, device);
}

static int open_ports(struct search *search, unsigned position)
{
	const char *name = search->provider->name(&search->listing, position);
	unsigned count;
	int ret;

	if (!snt__select_name(&search->select, name))
		return 0;
	ret = snt__device_count_ports(search->provider, &search->listing, position,
				      &count);
	if (!ret && !count)
		snt__log(&search->ctx->log, SNT_LOG_INFO, "left out: %s has no port",
			 name);
	for (unsigned number = 1; !ret && number <= count; number++)
		ret = open_device_port(search, position, number);
	return ret;
}

/* All names, or as many as fit and an ellipsis. */
static const char *present_names(const struct search *search, char *text, size_t size)
{
	size_t used = 0;

	snprintf(text, size, "none");
	for (unsigned i = 0; i < search->listing.count; i++) {
		const char *name = search->provider->name(&search->listing, i);

		if (used + strlen(name) + sizeof(", ...") > size) {
			snprintf(text + used, size - used, "...");
			break;
		}
		used += snprintf(text + used, size - used, "%s%s", name,
				 i + 1 < search->listing.count ? ", " : "");
	}
	return text;
}

/* The origin of the list, last in a sentence, since it may be long. */
static const char *source_text(const struct search *search, char *text, size_t size)
{
	const struct snt__value *source = &search->select.source;
	int length = snprintf(text, size, "%s=\"%s\"", source->origin, source->text);

	if ((size_t)length >= size)
		snprintf(text + size - sizeof("...\""), sizeof("...\""), "...\"");
	return text;
}

static void warn_of_idle_exclusion(const struct search *search,
				   const struct snt__entry *entry)
{
	char text[SNT__ENTRY_TEXT], present[256];

	if (!entry->names_seen || (entry->names_open && !entry->ports_seen))
		snt__log(&search->ctx->log, SNT_LOG_WARN,
			 "%s: \"%s\" excludes nothing; present: %s",
			 search->select.source.origin, snt__entry_text(entry, text),
			 present_names(search, present, sizeof(present)));
}

/* Did an entry select what it names? */
static int check_entry(const struct search *search, const struct snt__entry *entry)
{
	char text[SNT__ENTRY_TEXT], present[192], source[128];

	snt__entry_text(entry, text);
	source_text(search, source, sizeof(source));
	if (*entry->name && !entry->names_seen)
		return snt__fail(ENODEV,
				 "\"%s\" matches no device; present: %s; from %s", text,
				 present_names(search, present, sizeof(present)),
				 source);
	if (entry->port && entry->names_open && !entry->ports_seen)
		return snt__fail(ENODEV, "\"%s\": there is no port %u; from %s", text,
				 entry->port, source);
	if (entry->left_out && !entry->ports_taken)
		return snt__fail(-entry->left_out, "no usable port%s%s: %s",
				 *text ? " matches " : "", text, entry->left_out_text);
	return 0;
}

static int check_entries(const struct search *search)
{
	for (unsigned i = 0; i < search->select.count; i++) {
		const struct snt__entry *entry = &search->select.entry[i];
		int ret = 0;

		if (entry->exclude)
			warn_of_idle_exclusion(search, entry);
		else
			ret = check_entry(search, entry);
		if (ret)
			return ret;
	}
	return 0;
}

/* Whether soft devices may be used, and which setting or option decided that. */
struct soft_wish {
	enum snt_soft mode;
	const char *origin;
};

static int fail_no_device(const struct search *search, struct soft_wish soft)
{
	char present[192], source[128];

	if (search->listing.count)
		return snt__fail(ENODEV, "no device is left by %s; present: %s",
				 source_text(search, source, sizeof(source)),
				 present_names(search, present, sizeof(present)));
	return snt__fail(ENODEV,
			 "this host has no RDMA device, and %s excludes soft ones",
			 soft.origin);
}

static int search_devices(struct search *search, struct soft_wish soft)
{
	unsigned before = search->ctx->device_count;
	int ret = 0;

	for (unsigned i = 0; !ret && i < search->listing.count; i++)
		ret = open_ports(search, i);
	if (!ret)
		ret = check_entries(search);
	if (!ret && search->ctx->device_count == before)
		ret = fail_no_device(search, soft);
	return ret;
}

static struct snt__value soft_addresses(const struct snt_ctx_opts *opts)
{
	return snt__setting_get(SNT__SETTING_SOFT_ADDRESSES, opts->soft_addresses,
				"snt_ctx_opts.soft_addresses");
}

static int list_soft(struct search *search, const struct snt_ctx_opts *opts)
{
	search->provider = &snt__provider_soft;
	return search->provider->list(soft_addresses(opts), &search->listing);
}

/* Used when there are no other devices. A program that names addresses of soft devices
 * expects them, and is not warned. */
static int fall_back_to_soft(struct search *search, const struct snt_ctx_opts *opts)
{
	struct snt__value addresses = soft_addresses(opts);
	int ret;

	search->provider->unlist(&search->listing);
	ret = list_soft(search, opts);
	if (ret)
		return snt__fail(
			-ret,
			"this host has no RDMA device, and soft ones cannot be opened: %s",
			snt_err_text());
	snt__log(&search->ctx->log, *addresses.text ? SNT_LOG_INFO : SNT_LOG_WARN,
		 "this host has no RDMA device; using %u soft device%s",
		 search->listing.count, search->listing.count == 1 ? "" : "s");
	return 0;
}

static int list_usable_devices(struct search *search, const struct snt_ctx_opts *opts,
			       enum snt_soft mode)
{
	int ret;

	if (mode == SNT_SOFT_ONLY)
		return list_soft(search, opts);
	search->provider = &snt__provider_verbs;
	ret = search->provider->list((struct snt__value){ 0 }, &search->listing);
	if (ret || search->listing.count || mode == SNT_SOFT_NEVER)
		return ret;
	return fall_back_to_soft(search, opts);
}

static int open_listed(struct snt_ctx *ctx, const struct snt_ctx_opts *opts,
		       struct soft_wish soft)
{
	struct search search = { .ctx = ctx };
	int ret;

	ret = snt__select_parse(&search.select,
				snt__setting_get(SNT__SETTING_DEVICES, opts->devices,
						 "snt_ctx_opts.devices"));
	if (ret)
		return ret;
	ret = list_usable_devices(&search, opts, soft.mode);
	if (ret)
		return ret;
	ret = search_devices(&search, soft);
	search.provider->unlist(&search.listing);
	return ret;
}

static int adopt_devices(struct snt_ctx *ctx, const struct snt_ctx_opts *opts)
{
	size_t stride = opts->adopted_count ? opts->adopted->size : 0;
	const char *at = (const char *)opts->adopted;

	for (size_t i = 0; i < opts->adopted_count; i++, at += stride) {
		struct snt_adopted adopted;
		struct snt_device *device;
		int ret;

		ret = snt__opts_import(&adopted, sizeof(adopted), at,
				       "struct snt_adopted");
		if (ret)
			return ret;
		if (((const struct snt_adopted *)at)->size != stride)
			return snt__fail(EINVAL,
					 "adopted[%zu] states another size than the "
					 "first",
					 i);
		ret = snt__device_adopt(&adopted, ctx->gid_wish, &device);
		if (ret)
			return ret;
		ret = add_opened_device(ctx, device);
		if (ret)
			return ret;
	}
	return 0;
}

static int soft_mode(const struct snt_ctx_opts *opts, struct soft_wish *wish_out)
{
	static const char *const words[] = { "auto", "never", "only", NULL };
	struct snt__value value = snt__setting_get(SNT__SETTING_SOFT, NULL, NULL);
	int word;

	*wish_out = (struct soft_wish){ opts->soft, "snt_ctx_opts.soft" };
	if (opts->soft > SNT_SOFT_ONLY)
		return snt__fail(EINVAL, "snt_ctx_opts.soft %u is not a mode",
				 opts->soft);
	if (opts->soft != SNT_SOFT_DEFAULT)
		return 0;
	word = snt__setting_word(value, words);
	if (word < 0)
		return word;
	*wish_out = (struct soft_wish){ SNT_SOFT_AUTO + word, value.origin };
	return 0;
}

/* A program that brings its own devices gets further ones only if its code asks. */
static bool wants_others(const struct snt_ctx_opts *opts)
{
	return !opts->adopted_count || opts->devices || opts->soft == SNT_SOFT_AUTO ||
	       opts->soft == SNT_SOFT_ONLY;
}

int snt__open_devices(struct snt_ctx *ctx, const struct snt_ctx_opts *opts)
{
	struct soft_wish soft;
	int ret = soft_mode(opts, &soft);

	if (ret)
		return ret;
	if (opts->adopted_count && !opts->adopted)
		return snt__fail(EINVAL, "adopted_count is %zu but adopted is NULL",
				 opts->adopted_count);
	ret = adopt_devices(ctx, opts);
	if (ret || !wants_others(opts))
		return ret;
	return open_listed(ctx, opts, soft);
}

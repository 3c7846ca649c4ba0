/* SPDX-License-Identifier: MIT */
/* sennit info: the devices of this host, and how the library sees them. */
#include <dirent.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sennit/sennit.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "loss.h"
#include "path.h"
#include "sysfs.h"

struct info_opts {
	struct context_opts context;
	bool config;
	bool verbose;
};

/*
 * Words
 */

static const char *device_kind_text(enum snt_device_kind kind)
{
	return kind == SNT_DEVICE_SOFT	  ? "soft"
	       : kind == SNT_DEVICE_VERBS ? "verbs"
					  : "adopted";
}

static const char *link_text(enum snt_link link)
{
	return link == SNT_LINK_INFINIBAND ? "InfiniBand"
	       : link == SNT_LINK_ETHERNET ? "Ethernet"
					   : "unknown";
}

static const char *port_state_text(enum snt_port_state state)
{
	static const char *const text[] = { "unknown", "down", "init", "armed",
					    "active" };

	return (unsigned)state < sizeof(text) / sizeof(*text) ? text[state] : "unknown";
}

static const char *gid_type_text(enum snt_gid_type type)
{
	return type == SNT_GID_ROCE_V2	 ? "RoCE v2"
	       : type == SNT_GID_ROCE_V1 ? "RoCE v1"
					 : "IB";
}

/*
 * One device
 */

/* Limits by name, for both kinds of output. */
static const struct {
	const char *name;
	size_t offset;
	bool wide; /* 64 bits */
} limits[] = {
#define LIMIT(member, wide)                                             \
	{                                                               \
#member, offsetof(struct snt_device_info, member), wide \
	}
	LIMIT(message_size_max, true), LIMIT(qp_max, false),
	LIMIT(qp_depth_max, false),    LIMIT(qp_sge_max, false),
	LIMIT(cq_max, false),	       LIMIT(cq_depth_max, false),
	LIMIT(mr_max, false),	       LIMIT(mr_size_max, true),
	LIMIT(read_in_max, false),     LIMIT(read_out_max, false),
	LIMIT(srq_max, false),	       LIMIT(srq_depth_max, false),
	LIMIT(pkey_count, false),      LIMIT(comp_vector_count, false),
#undef LIMIT
};
#define LIMIT_COUNT (sizeof(limits) / sizeof(*limits))

static uint64_t limit_of(const struct snt_device_info *info, size_t i)
{
	const char *place = (const char *)info + limits[i].offset;
	uint64_t wide;
	uint32_t narrow;

	if (limits[i].wide) {
		memcpy(&wide, place, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, place, sizeof(narrow));
	return narrow;
}

static const char *path_words(enum snt_path path)
{
	return path == SNT_PATH_SHM
		       ? "shared memory to soft devices of this user on this host, UDP port "
			 "4791 to all others"
	       : path == SNT_PATH_UDP  ? "UDP port 4791"
	       : path == SNT_PATH_PORT ? "the device's port"
				       : "unknown";
}

static const char *netdev_text(uint32_t index, char buffer[IF_NAMESIZE])
{
	return index && if_indextoname(index, buffer) ? buffer : "";
}

static void say_gids(const struct snt_device *device,
		     const struct snt_device_info *info)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	char name[IF_NAMESIZE];

	for (uint32_t i = 0; !snt_device_query_gid(device, i, &gid); i++) {
		const char *netdev = netdev_text(gid.netdev, name);

		output_text("  GID %-3u %s %s, %s%s%s; score %d: %s\n", gid.index,
			    (int32_t)gid.index == info->gid_index ? "*" : " ", gid.text,
			    gid_type_text(gid.type), *netdev ? ", " : "", netdev,
			    gid.score, gid.reason);
	}
	output_text("  chosen: %s\n", info->gid_reason);
}

static void say_stats(const struct snt_device *device)
{
	struct snt_device_stats stats = { .size = sizeof(stats) };
	char bytes[OUTPUT_QUANTITY];

	if (snt_device_query_stats(device, &stats))
		return;
	output_text(
		"  receive buffer: %s; packets: %llu in, %llu out, %llu sent again, "
		"%llu dropped\n",
		output_bytes(bytes, stats.receive_buffer),
		(unsigned long long)stats.packets_in,
		(unsigned long long)stats.packets_out,
		(unsigned long long)stats.resends, (unsigned long long)stats.drops);
}

/* One sentence for all devices, which have the same limit. */
static void say_small_buffers(const struct snt_ctx *ctx)
{
	char text[LOSS_TEXT];
	struct loss loss;

	loss_read(ctx, &loss);
	if (loss_advice(&loss, "this host", text))
		output_fill(text, 0);
}

static json_t *json_stats(const struct snt_device *device)
{
	struct snt_device_stats stats = { .size = sizeof(stats) };

	if (snt_device_query_stats(device, &stats))
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "packets_in", (json_int_t)stats.packets_in, "packets_out",
			 (json_int_t)stats.packets_out, "resends",
			 (json_int_t)stats.resends, "probes", (json_int_t)stats.probes,
			 "timeouts", (json_int_t)stats.timeouts, "duplicates",
			 (json_int_t)stats.duplicates, "out_of_order",
			 (json_int_t)stats.out_of_order, "drops",
			 (json_int_t)stats.drops, "receive_buffer",
			 (json_int_t)stats.receive_buffer, "receive_buffer_wanted",
			 (json_int_t)stats.receive_buffer_wanted);
}

static void say_device(const struct snt_device *device,
		       const struct snt_device_info *info,
		       const struct sysfs_device *place, bool verbose)
{
	char rate[OUTPUT_QUANTITY] = "speed unknown";
	char node[32] = "NUMA node unknown";

	if (info->speed_mbps)
		output_rate(rate, info->speed_mbps * 1e6 / 8);
	else if (info->kind == SNT_DEVICE_SOFT)
		snprintf(rate, sizeof(rate), "no speed of its own");
	if (info->numa_node >= 0)
		snprintf(node, sizeof(node), "NUMA node %d", info->numa_node);
	output_text("device %u: %s port %u, %s, %s, %s\n", info->index, info->name,
		    info->port, device_kind_text(info->kind), link_text(info->link),
		    port_state_text(info->state));
	output_text("  MTU %u of %u, %s, %s%s\n", info->mtu, info->mtu_max, rate, node,
		    info->atomics ? ", atomics" : ", no atomics");
	output_text("  path: %s\n", path_words(info->path));
	if (info->kind == SNT_DEVICE_SOFT)
		output_text("  address: to be shared with other processes of this user "
			    "that name it\n");
	say_stats(device);
	if (*place->pci)
		output_text("  PCIe %s%s%s%s%s\n", place->pci, *place->link ? ", " : "",
			    place->link, *place->firmware ? ", firmware " : "",
			    place->firmware);
	if (info->lid)
		output_text("  LID %u\n", info->lid);
	say_gids(device, info);
	if (!verbose)
		return;
	for (size_t i = 0; i < LIMIT_COUNT; i++)
		output_text("  %-18s%llu\n", limits[i].name,
			    (unsigned long long)limit_of(info, i));
}

static json_t *json_gids(const struct snt_device *device,
			 const struct snt_device_info *info)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	json_t *gids = json_array();
	char name[IF_NAMESIZE];

	for (uint32_t i = 0; !snt_device_query_gid(device, i, &gid); i++)
		json_array_append_new(gids,
				      json_pack("{s:i, s:s, s:s, s:s, s:i, s:s, s:b}",
						"index", (int)gid.index, "address",
						gid.text, "type",
						gid_type_text(gid.type), "netdev",
						netdev_text(gid.netdev, name), "score",
						(int)gid.score, "reason", gid.reason,
						"chosen",
						(int32_t)gid.index == info->gid_index));
	return gids;
}

static json_t *json_device(const struct snt_device *device,
			   const struct snt_device_info *info,
			   const struct sysfs_device *place)
{
	json_t *object = json_pack(
		"{s:i, s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:s}",
		"index", (int)info->index, "name", info->name, "port", (int)info->port,
		"kind", device_kind_text(info->kind), "link", link_text(info->link),
		"state", port_state_text(info->state), "mtu", (int)info->mtu, "mtu_max",
		(int)info->mtu_max, "speed_mbps", (int)info->speed_mbps, "numa_node",
		(int)info->numa_node, "lid", (int)info->lid, "atomics",
		info->atomics != 0, "path", path_name(info->path));
	json_t *limit_object = json_object();

	for (size_t i = 0; i < LIMIT_COUNT; i++)
		json_object_set_new(limit_object, limits[i].name,
				    json_integer((json_int_t)limit_of(info, i)));
	json_object_set_new(object, "limits", limit_object);
	json_object_set_new(object, "stats", json_stats(device));
	json_object_set_new(object, "gids", json_gids(device, info));
	json_object_set_new(object, "gid_reason", json_string(info->gid_reason));
	json_object_set_new(object, "pci", json_string(place->pci));
	json_object_set_new(object, "pci_link", json_string(place->link));
	json_object_set_new(object, "firmware", json_string(place->firmware));
	return object;
}

static void show_devices(struct snt_ctx *ctx, bool verbose, json_t *result)
{
	json_t *devices = json_array();

	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++) {
		struct snt_device_info info = { .size = sizeof(info) };
		const struct snt_device *device = snt_ctx_device(ctx, i);
		struct sysfs_device place;

		snt_device_query(device, &info);
		sysfs_device(info.kind == SNT_DEVICE_VERBS ? info.name : "", &place);
		say_device(device, &info, &place, verbose);
		json_array_append_new(devices, json_device(device, &info, &place));
	}
	say_small_buffers(ctx);
	json_object_set_new(result, "devices", devices);
}

/*
 * Devices of the kernel that are not in the context
 */

struct left_out {
	struct snt_ctx *ctx; /* NULL: there is none */
	json_t *array;
};

static bool is_port_open(struct snt_ctx *ctx, const char *name, unsigned port)
{
	struct snt_device_info info = { .size = sizeof(info) };

	for (unsigned i = 0; ctx && i < snt_ctx_device_count(ctx); i++) {
		snt_device_query(snt_ctx_device(ctx, i), &info);
		if (!strcmp(info.name, name) && info.port == port)
			return true;
	}
	return false;
}

static void show_left_out(void *arg, const char *name, unsigned port, const char *state)
{
	struct left_out *left_out = arg;

	if (is_port_open(left_out->ctx, name, port))
		return;
	output_text("not opened: %s port %u: %s%s\n", name, port, state,
		    strstr(state, "ACTIVE") ? ", and not selected" : "");
	json_array_append_new(left_out->array,
			      json_pack("{s:s, s:i, s:s}", "name", name, "port",
					(int)port, "state", state));
}

/*
 * The host and the settings
 */

static void show_limit(json_t *object, const char *name, int resource, const char *unit)
{
	struct rlimit limit;
	char text[32] = "unlimited";

	if (getrlimit(resource, &limit))
		return;
	if (limit.rlim_cur != RLIM_INFINITY)
		snprintf(text, sizeof(text), "%llu%s",
			 (unsigned long long)limit.rlim_cur, unit);
	output_text("  %-24s%s\n", name, text);
	json_object_set_new(object, name,
			    limit.rlim_cur == RLIM_INFINITY
				    ? json_null()
				    : json_integer((json_int_t)limit.rlim_cur));
}

static void show_host(json_t *result)
{
	static const char *const sysctls[] = { "net/core/rmem_max",
					       "net/core/wmem_max" };
	json_t *host = json_object();
	struct utsname name;
	char text[64];

	uname(&name);
	output_text("host %s, kernel %s, sennit %s\n", name.nodename, name.release,
		    TOOL_VERSION);
	json_object_set_new(host, "name", json_string(name.nodename));
	json_object_set_new(host, "kernel", json_string(name.release));
	json_object_set_new(host, "sennit", json_string(TOOL_VERSION));
	show_limit(host, "memlock", RLIMIT_MEMLOCK, " bytes may be locked");
	show_limit(host, "files", RLIMIT_NOFILE, " may be open");
	for (size_t i = 0; i < sizeof(sysctls) / sizeof(*sysctls); i++) {
		if (!sysfs_sysctl(sysctls[i], text, sizeof(text)))
			continue;
		output_text("  %-24s%s\n", sysctls[i], text);
		json_object_set_new(host, sysctls[i], json_string(text));
	}
	json_object_set_new(result, "host", host);
}

static void show_settings(json_t *result)
{
	size_t count;
	const struct snt_setting *setting = snt_setting_list(&count);
	json_t *array = json_array();

	output_text("settings (environment; read when a context is opened):\n");
	for (size_t i = 0; i < count; i++) {
		const char *value = getenv(setting[i].name);

		value = value && *value ? value : NULL;
		output_text("  %s=%s%s\n      %s%s%s%s\n", setting[i].name,
			    value ? value : setting[i].default_value,
			    value ? "    (set)" : "", setting[i].help,
			    value ? " (default: \"" : "",
			    value ? setting[i].default_value : "", value ? "\")" : "");
		json_array_append_new(array,
				      json_pack("{s:s, s:s, s:s, s:s?}", "name",
						setting[i].name, "default",
						setting[i].default_value, "help",
						setting[i].help, "value", value));
	}
	json_object_set_new(result, "settings", array);
}

static int info_run(const void *opts_in, int count, char **argument)
{
	const struct info_opts *opts = opts_in;
	struct left_out left_out = { .array = json_array() };
	json_t *result = output_object();
	int status = STATUS_OK;

	(void)count, (void)argument;
	if (!opts->config) {
		show_host(result);
		status = context_open(&opts->context, &left_out.ctx);
		if (!status)
			show_devices(left_out.ctx, opts->verbose, result);
		sysfs_each_port(show_left_out, &left_out);
		json_object_set(result, "not_opened", left_out.array);
		snt_ctx_destroy(left_out.ctx);
	}
	show_settings(result);
	if (output.json)
		output_json(json_incref(result));
	json_decref(left_out.array);
	json_decref(result);
	return status;
}

const struct command info_command = {
	.name = "info",
	.summary = "devices, ports, GIDs, limits and settings of this host",
	.arguments = "",
	.description =
		"Opens devices as any program that uses the library does, with the "
		"same settings, and shows them: ports, MTU, speed, place in the "
		"machine, and the GIDs of the port, with the chosen one (*) and the "
		"reason; then kernel devices that were not opened, and all settings "
		"with their current values.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .name = "config",
			  .offset = offsetof(struct info_opts, config),
			  .help = "show only the settings, and open no device" },
			{ .kind = OPTION_FLAG,
			  .letter = 'v',
			  .name = "verbose",
			  .offset = offsetof(struct info_opts, verbose),
			  .help = "show the limits of each device as well" },
			{ .kind = OPTION_TABLE,
			  .table = context_options,
			  .offset = offsetof(struct info_opts, context) },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit info", "everything" },
			{ "sennit info --devices mlx5_0 --gid 3",
			  "is this selection valid?" },
			{ "sennit info --json | jq '.devices[].mtu'", "for a script" },
			{ 0 },
		},
	.opts_size = sizeof(struct info_opts),
	.run = info_run,
};

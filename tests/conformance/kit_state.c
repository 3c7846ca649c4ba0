/* SPDX-License-Identifier: MIT */
/* QP states: the attributes of each transition, complete and legal. */
#include <string.h>

#include "kit.h"
#include "lib/rc.h"

static void address(const struct kit *kit, struct ibv_ah_attr *ah)
{
	ah->port_num = kit->info.port;
	ah->dlid = kit->info.lid;
	ah->is_global = 1;
	ah->grh.sgid_index = kit->gid.index;
	ah->grh.hop_limit = 64;
	memcpy(ah->grh.dgid.raw, kit->gid.raw, sizeof(kit->gid.raw));
}

int attrs_for(const struct scene *scene, enum ibv_qp_state state,
	      const struct pair_opts *opts, uint32_t dest_qp_num,
	      struct ibv_qp_attr *attr_out)
{
	if (!opts)
		opts = &pair_defaults;
	memset(attr_out, 0, sizeof(*attr_out));
	attr_out->qp_state = state;
	attr_out->port_num = scene->kit->info.port;
	attr_out->qp_access_flags = opts->access;
	attr_out->path_mtu = __builtin_ctz(scene->kit->info.mtu) - 7;
	attr_out->dest_qp_num = dest_qp_num;
	attr_out->rq_psn = opts->rq_psn;
	attr_out->sq_psn = opts->sq_psn;
	attr_out->max_dest_rd_atomic = 4;
	attr_out->max_rd_atomic = opts->max_rd_atomic;
	attr_out->min_rnr_timer = opts->min_rnr_timer;
	attr_out->timeout = opts->timeout;
	attr_out->retry_cnt = opts->retry_cnt;
	attr_out->rnr_retry = opts->rnr_retry;
	address(scene->kit, &attr_out->ah_attr);
	return rc_mask(state);
}

int go_to(struct scene *scene, unsigned slot, enum ibv_qp_state state,
	  const struct pair_opts *opts, uint32_t dest_qp_num)
{
	struct ibv_qp_attr attr;
	int mask = attrs_for(scene, state, opts, dest_qp_num, &attr);

	return scene->control->modify_qp(scene->qp[slot], &attr, mask);
}

bool connect_to(struct scene *scene, unsigned slot, const struct pair_opts *opts,
		uint32_t dest_qp_num)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS };

	for (unsigned i = 0; i < ARRAY_SIZE(way); i++) {
		int ret = go_to(scene, slot, way[i], opts, dest_qp_num);

		if (!ret)
			continue;
		say(scene, "to %s %s", state_name(way[i]), control_name(ret));
		return false;
	}
	return true;
}

int to_error(struct scene *scene, unsigned slot)
{
	return go_to(scene, slot, IBV_QPS_ERR, NULL, 0);
}

enum ibv_qp_state state_of(struct scene *scene, unsigned slot)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (scene->control->query_qp(scene->qp[slot], &attr, IBV_QP_STATE, &init))
		return IBV_QPS_UNKNOWN;
	return attr.qp_state;
}

-- Kernels, with the registers that the compiler allocated
SELECT
    id,
    coalesce(nullif(display_name, ''), kernel_name) AS name,
    arch_vgpr_count AS vgprs,
    accum_vgpr_count AS accum_vgprs,
    sgpr_count AS sgprs
FROM rocpd_info_kernel_symbol
ORDER BY id

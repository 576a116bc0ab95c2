"""Three-way merge of manifests: restore what mpctl changed, keep what another writer changed."""
